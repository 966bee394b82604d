"""Random SQL queries, which run on a table and on the same rows in Parquet."""

import datetime as dt
import decimal
import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.spark.generated_rows import POOLS, UNUSUAL, quoted


class Answer(Enum):
    """How two answers have to agree."""

    ROWS = "the same rows, in any order"
    ORDERED = "the same rows in the same order"
    ANY = "as many rows, all of them among those without a limit"


@dataclass(frozen=True)
class GeneratedQuery:
    """A query; `{t}` stands for the table, `{search:word}` for a search of the column `words`."""

    sql: str
    answer: Answer = Answer.ROWS
    unlimited: str = ""

    def ours(self, table: str) -> str:
        return _filled(self.sql, table, _operator)

    def plain(self, table: str, *, unlimited: bool = False) -> str:
        return _filled(self.unlimited if unlimited else self.sql, table, _pattern)


def _filled(text: str, table: str, search: Any) -> str:
    parts = text.split("{search:")
    made = [parts[0]]
    for part in parts[1:]:
        words, rest = part.split("}", 1)
        made += [search(words), rest]
    return "".join(made).replace("{t}", table)


def _operator(words: str) -> str:
    return f"words INDEXQUERY '{words}'"


def _pattern(words: str) -> str:
    """All words are there, whatever their case, between signs that are no letters or digits."""
    each = [
        f"coalesce(words RLIKE '(?iu)(^|[^\\\\p{{L}}\\\\p{{N}}]){w}($|[^\\\\p{{L}}\\\\p{{N}}])', false)"
        for w in words.split()
    ]
    return "(" + " AND ".join(each) + ")"


NUMBERS = ["tiny", "small", "whole", "big", "single", "real", "price", "huge", "MixedCase"]
TIMES = ["day", "moment", "local"]
ORDERED = [*NUMBERS, *TIMES, "name", "words", "flag", "raw", *UNUSUAL]
BUCKETS = [
    "indextables_histogram(whole, 10)",
    "indextables_histogram(real, 0.25, 0.1)",
    "indextables_histogram(price, 5)",
    "indextables_date_histogram(moment, '1d')",
    "indextables_date_histogram(moment, '15m', '5m')",
    "indextables_date_histogram(local, '6h')",
    "indextables_date_histogram(day, '30d')",
    "indextables_range(small, 'low', NULL, 0, 'high', 9, 100)",
    "indextables_range(real, 'all', NULL, 1e9)",
]
GROUPS = [
    "tiny",
    "whole",
    "MixedCase",
    "flag",
    "name",
    "day",
    "price",
    "moment",
    "single",
    "spot.a",
    "year(day)",
    *map(quoted, UNUSUAL),
    quoted("odd keys", "x\\y"),
    *BUCKETS,
]
# Python functions that return their argument; `user_functions` registers them.
FUNCTIONS = ["same_pickled", "same_pandas", "same_arrow"]
# Aggregates in Python, which return the sum; a table function that returns each row twice; one that counts rows.
TOTALS = ["total_pandas", "total_arrow"]
TWICE, COUNTED = "each_twice", "batch_lengths"
NESTED = ["spot", "tags", "attrs", "points", "`odd keys`"]

OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]

_FREE = """
length(name) > 4
upper(name) = 'ALPHA'
name = 'alpha '
name LIKE 'al%'
name LIKE '%a'
name LIKE '%a*%'
name LIKE 'a?b'
name LIKE 'a_b'
name LIKE '100\\\\%'
name LIKE '%\\\\_%'
name LIKE ''
name NOT LIKE '%a%'
name ILIKE 'ALPHA%'
name COLLATE UTF8_LCASE = 'ALPHA'
name RLIKE '^[a-g]+$'
startswith(name, 'a')
endswith(name, '')
contains(name, '\\\\')
name > 'b'
name >= 'b' AND name > 'a'
name BETWEEN 'a' AND 'b'
name < concat('de', 'lta')
name IN ('alpha', 'back\\\\slash', 'it\\'s', NULL)
name NOT IN ('alpha', NULL)
name IS NULL OR name = ''
words = 'alpha'
words > 'b'
words LIKE '%error%'
words IS NULL
whole > 5 AND whole > 3
whole > 3 AND whole < 2
whole = 1.5
whole < 2.5
whole IN (1, 2, 3)
whole NOT IN (1, NULL)
whole = '10'
whole % 3 = 0
abs(MixedCase) = 1
-MixedCase < -2
MixedCase + 1 > 3
try_add(whole, 1) > 3
tiny = 300
tiny < 300
tiny > -200
big = 9007199254740993
big > 9007199254740992D
big = tiny
small > tiny
whole <=> tiny
whole <=> NULL
NOT (whole <=> NULL)
isnan(real)
isnan(single)
real = double('NaN')
real > 1e308
real = 0.0
real = -0.0
real <=> -0.0
real IN (0.0, double('NaN'))
single = 0.1
single = CAST(0.1 AS FLOAT)
single > real
real >= double('Infinity')
price = 1.1
price > 1.105
price < 10
price IN (1.10, 9.99)
price = real
huge = 0.1
huge > 0.1
huge < price
flag
NOT flag
flag = false
flag IS NOT TRUE
flag <=> NULL
(whole > 2) = flag
(whole > 2) IS NULL
raw = X'616263'
raw > X'61'
length(raw) = 3
day = '2024-02-29'
day >= '2024-01-01'
day = DATE'2024-03-10'
day < TIMESTAMP'2024-03-10 05:00:00'
day = moment
day IN ('2024-02-29', DATE'1970-01-01')
year(day) = 2024
date_add(day, 1) = DATE'2024-03-01'
moment = TIMESTAMP'2024-06-15 12:00:00.123456'
moment = TIMESTAMP'2024-06-15 12:00:00.123456Z'
moment >= '2024-03-10 02:30:00'
moment < '2024-03-31'
moment BETWEEN TIMESTAMP'2024-10-27 01:00:00' AND TIMESTAMP'2024-10-27 02:00:00'
CAST(moment AS DATE) = DATE'2024-12-31'
to_date(moment) >= '2024-11-03'
hour(moment) < 3
date_trunc('DAY', moment) = TIMESTAMP'2024-03-10 00:00:00'
moment = local
moment > local
local = '2024-10-27 00:30:00'
local > TIMESTAMP_NTZ'2024-06-15 12:00:00.123456'
local < DATE'1970-01-01'
unix_micros(moment) > 0
indextables_histogram(whole, 10) = 0
indextables_range(small, 'a', 0, 10) = 'a'
mixedcase_ > 2
mixedcase_ IS NULL
spot.a = 1
spot.a > 1 OR spot.b = 'alpha'
spot.b LIKE 'a%'
spot.b IS NULL
spot.c IS NULL
spot.c.d > 0
NOT (spot.c.d > 0)
isnan(spot.c.d)
spot.c.e >= DATE'2024-01-01'
spot IS NULL
spot IS NOT NULL AND spot.a IS NULL
spot.a IN (1, 2)
tags IS NULL
array_contains(tags, 'alpha')
size(tags) > 1
exists(tags, x -> x LIKE 'a%')
tags = array('alpha')
attrs IS NOT NULL
attrs['k'] > 1
attrs['K'] IS NULL
map_contains_key(attrs, 'other')
points.x IS NOT NULL
array_contains(points.x, 1)
coalesce(whole, 0) = 0
CASE WHEN whole > 2 THEN flag ELSE name = 'alpha' END
if(flag, tiny, small) > 0
`odd keys`.`x\\y` = 2
`odd keys`.`a.b` LIKE 'a%'
`odd keys`.`from` IN (1, 3)
`odd keys`.`ü ``☃` > 1 OR `odd keys` IS NULL
NOT (`odd keys`.`a.b` = 'alpha')
`spot.a` = 1
`spot.a` <=> spot.a
`spot.a` > spot.a
`select` = 'alpha' OR `with space` IS NULL
`x\\y` >= 'b' AND `back``tick` < 2
whole IN (SELECT MixedCase FROM {t})
whole = (SELECT max(MixedCase) FROM {t})
exists(SELECT 1 FROM {t} AS other WHERE other.id = id + 1)
{search:alpha}
{search:ALPHA}
{search:error timeout}
{search:server7}
NOT {search:alpha}
{search:nothing}
{search:retry} OR whole > 3
{search:retry} AND NOT {search:alpha}
NOT ({search:retry} AND flag)
{search:gamma} OR {search:delta}
{search:gamma} AND length(name) > 3
{search:gamma} OR length(name) > 3
{search:alpha} = flag
CASE WHEN {search:alpha} THEN flag ELSE whole > 1 END
"""
FREE = [line for line in _FREE.splitlines() if line]


def literal(value: Any) -> str:
    """A value as Spark's SQL writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float():
            return f"double('{value!r}')"
        case decimal.Decimal():
            return f"{value:f}BD"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime() if value.tzinfo:
            return f"TIMESTAMP'{value:%Y-%m-%d %H:%M:%S.%f}Z'"
        case dt.datetime():
            return f"TIMESTAMP_NTZ'{value:%Y-%m-%d %H:%M:%S.%f}'"
        case dt.date():
            return f"DATE'{value}'"
        case int():
            return f"{value}L" if value > -(1 << 63) else "(-9223372036854775807L - 1L)"
        case _:
            pass
    raise TypeError(value)


def _needs_bridge(text: str) -> bool:
    return "{search:" in text or "indextables_" in text


class QueryGenerator:
    """Generates queries, the same for the same seed."""

    def __init__(
        self, seed: int, *, case_sensitive: bool = False, ansi: bool = True, bridge: bool = True
    ) -> None:
        """`bridge` says whether the session has search operators and bucket functions."""
        self.rng = random.Random(f"queries {seed}")
        self.bridge = bridge
        self.free = [each for each in FREE if bridge or not _needs_bridge(each)]
        self.groups = [each for each in GROUPS if bridge or not _needs_bridge(each)]
        # In ANSI mode a sum that overflows fails, or not: that depends on which rows are added first.
        self.summed = [n for n in NUMBERS if n != "huge" and not (ansi and n == "big")]
        self.mixed = (
            "MixedCase" if case_sensitive else self.rng.choice(["mixedcase", "MIXEDCASE", "MixedCase"])
        )

    def query(self) -> GeneratedQuery:
        """The next query."""
        kinds = (
            [self._rows] * 6
            + [self._some]
            + [self._top] * 2
            + [self._totals] * 2
            + [self._groups] * 3
            + [self._joined] * 2
            + [self._around]
            + [self._function] * 2
            + [self._deep, self._listed, self._edges, self._narrowed, self._subquery]
            + [self._aggregate_function, self._table_function]
        )
        if self.bridge:
            kinds += [self._above_join] * 2
        query = self.rng.choice(kinds)()
        while not self.bridge and _needs_bridge(query.sql):
            query = self.rng.choice(kinds)()
        return query

    # --- conditions -----------------------------------------------------------------------------

    def condition(self, depth: int = 2) -> str:
        """A condition, a tree of conditions now and then."""
        if depth and self.rng.random() < 0.45:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            return self.rng.choice([f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})"])
        return self._leaf()

    def _leaf(self) -> str:
        if self.rng.random() < 0.5:
            return self.rng.choice(self.free).replace("mixedcase_", self.mixed)
        column = self.rng.choice(ORDERED)
        if column == "words":
            choices = ["words IS NOT NULL", "words <= 'error'", "{search:beta}"]
            return self.rng.choice(choices if self.bridge else choices[:2])
        pool = POOLS[column]
        name = self._name(column)
        match self.rng.randrange(6):
            case 0 | 1 | 2:
                return f"{name} {self.rng.choice(OPERATORS)} {literal(self.rng.choice(pool))}"
            case 3:
                items = [
                    literal(item) for item in self.rng.choices([*pool, None], k=self.rng.randrange(1, 6))
                ]
                return f"{name} {self.rng.choice(['IN', 'NOT IN'])} ({', '.join(items)})"
            case 4:
                low, high = self.rng.choice(pool), self.rng.choice(pool)
                return f"{name} BETWEEN {literal(low)} AND {literal(high)}"
            case _:
                return f"{name} IS {self.rng.choice(['', 'NOT '])}NULL"

    def _name(self, column: str) -> str:
        return self.mixed if column == "MixedCase" else quoted(column) if column in UNUSUAL else column

    def _where(self) -> str:
        return f" WHERE {self.condition()}" if self.rng.random() < 0.85 else ""

    # --- queries --------------------------------------------------------------------------------

    def _columns(self) -> str:
        if self.rng.random() < 0.15:
            return "*"
        pool = [*map(self._name, ORDERED), *NESTED, "spot.a", "spot.c.d", "id", quoted("odd keys", "a.b")]
        made = self.rng.sample(pool, self.rng.randrange(1, 5))
        if self.rng.random() < 0.3:
            made.append(
                self.rng.choice(
                    ["MixedCase + 1 AS more", "upper(name) AS loud", "size(tags) AS many", "points.y AS ys"]
                )
            )
        if self.bridge and self.rng.random() < 0.1:
            made.append("{search:alpha} AS found")
        return ", ".join(made)

    def _rows(self) -> GeneratedQuery:
        return GeneratedQuery(f"SELECT {self._columns()} FROM {{t}}{self._where()}")

    def _some(self) -> GeneratedQuery:
        text = f"SELECT id, {self._columns()} FROM {{t}}{self._where()}"
        offset = self.rng.choice(["", " OFFSET 3"])
        return GeneratedQuery(
            f"{text} LIMIT {self.rng.choice([0, 1, 7, 100, 10000])}{offset}", Answer.ANY, text
        )

    def _top(self) -> GeneratedQuery:
        keys = [self._key() for _ in range(self.rng.randrange(1, 3))]
        limit = f" LIMIT {self.rng.choice([1, 5, 40])}" + self.rng.choice(["", "", " OFFSET 2"])
        order = ", ".join([*keys, "id"])
        return GeneratedQuery(
            f"SELECT id, {self._columns()} FROM {{t}}{self._where()} ORDER BY {order}{limit}", Answer.ORDERED
        )

    def _key(self) -> str:
        column = self.rng.choice([*map(self._name, ORDERED), "spot.a", "length(name)"])
        return f"{column} {self.rng.choice(['ASC', 'DESC'])}{self.rng.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"

    def _totals(self) -> GeneratedQuery:
        return GeneratedQuery(f"SELECT {self._aggregates()} FROM {{t}}{self._where()}")

    def _aggregates(self) -> str:
        made = [self._aggregate() for _ in range(self.rng.randrange(1, 5))]
        return ", ".join(f"{text} AS a{i}" for i, text in enumerate(made))

    def _aggregate(self) -> str:
        column = self._name(self.rng.choice(ORDERED))
        number = self._name(self.rng.choice(self.summed))
        return self.rng.choice(
            [
                "count(*)",
                "count(1)",
                f"count({column})",
                "count(spot)",
                "count(spot.a)",
                f"count(DISTINCT {column})",
                f"min({column})",
                f"max({column})",
                f"sum({number})",
                # Rounded: of the least and the greatest number the sum in doubles depends on the order of the rows.
                f"avg({number})" if number != "big" else "round(avg(big) / 1e7)",
                "sum(MixedCase + 1)",
                f"count(*) FILTER (WHERE {column} IS NULL)",
                "max(spot.a)",
                "approx_count_distinct(id) > 0",
            ]
        )

    def _groups(self) -> GeneratedQuery:
        keys = [
            g if g != "MixedCase" else self.mixed
            for g in self.rng.sample(self.groups, self.rng.randrange(1, 3))
        ]
        named = ", ".join(f"{key} AS g{i}" for i, key in enumerate(keys))
        having = self.rng.choice(["", "", " HAVING count(*) > 2"])
        return GeneratedQuery(
            f"SELECT {named}, {self._aggregates()} FROM {{t}}{self._where()} GROUP BY {', '.join(keys)}{having}"
        )

    def _joined(self) -> GeneratedQuery:
        left, right = self.condition(1), self.condition(0)
        key = self._name(self.rng.choice(["whole", "tiny", "MixedCase", "day", "price", "id"]))
        kind = self.rng.choice(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "FULL JOIN"])
        sides = f"(SELECT * FROM {{t}} WHERE {left} ORDER BY id LIMIT 60) l {kind} (SELECT * FROM {{t}} WHERE {right}) r"
        others = "" if "SEMI" in kind or "ANTI" in kind else ", r.id AS other, r.words AS text"
        return GeneratedQuery(f"SELECT l.id, l.name{others} FROM {sides} ON l.{key} = r.{key}")

    def _around(self) -> GeneratedQuery:
        """The table in a common table expression, a union, a subquery, a window, a distinct."""
        first, second = self.condition(1), self.condition(1)
        return self.rng.choice(
            [
                GeneratedQuery(
                    f"WITH c AS (SELECT * FROM {{t}} WHERE {first}) SELECT count(*), max(id) FROM c WHERE {second}"
                ),
                GeneratedQuery(
                    f"SELECT id, name FROM {{t}} WHERE {first} UNION ALL SELECT id, words FROM {{t}} WHERE {second}"
                ),
                GeneratedQuery(f"SELECT DISTINCT MixedCase, flag FROM {{t}} WHERE {first}"),
                GeneratedQuery(
                    "SELECT id, row_number() OVER (PARTITION BY MixedCase ORDER BY id) AS place FROM {t} "
                    f"WHERE {first}"
                ),
                GeneratedQuery(
                    f"SELECT id FROM {{t}} WHERE {first} EXCEPT SELECT id FROM {{t}} WHERE {second}"
                ),
                GeneratedQuery(
                    f"SELECT x.id, tag FROM {{t}} x LATERAL VIEW explode(tags) e AS tag WHERE {first}"
                ),
                GeneratedQuery(
                    f"SELECT count(*) FROM (SELECT id FROM {{t}} WHERE {first} ORDER BY id LIMIT 20)"
                ),
            ]
        )

    # --- shapes that a scan meets seldom ------------------------------------------------------------

    def _function(self) -> GeneratedQuery:
        """A Python function of the user directly above the scan."""
        function = self.rng.choice(FUNCTIONS)
        condition = self.condition(1)
        return self.rng.choice(
            [
                GeneratedQuery(f"SELECT {function}(id) AS made, name FROM {{t}} WHERE {condition}"),
                GeneratedQuery(f"SELECT id, words FROM {{t}} WHERE {function}(id) % 3 = 1 AND ({condition})"),
                GeneratedQuery(
                    f"SELECT {function}(id) AS made FROM {{t}} WHERE {condition} LIMIT 7",
                    Answer.ANY,
                    f"SELECT {function}(id) AS made FROM {{t}} WHERE {condition}",
                ),
                GeneratedQuery(f"SELECT sum({function}(id)), count(*) FROM {{t}} WHERE {condition}"),
                GeneratedQuery(
                    f"SELECT {function}(id) % 5 AS g, max(name) FROM {{t}} WHERE {condition} GROUP BY 1"
                ),
            ]
        )

    def _aggregate_function(self) -> GeneratedQuery:
        """An aggregate of the user in Python over the scan."""
        function, condition = self.rng.choice(TOTALS), self.condition(1)
        key = self._name(self.rng.choice(["tiny", "flag", "name", "MixedCase", "spot.a", "select"]))
        return self.rng.choice(
            [
                GeneratedQuery(f"SELECT {function}(id) FROM {{t}} WHERE {condition}"),
                GeneratedQuery(f"SELECT {key}, {function}(id) FROM {{t}} WHERE {condition} GROUP BY {key}"),
                GeneratedQuery(
                    f"SELECT id, {function}(id) OVER (PARTITION BY {key}) AS total FROM {{t}} WHERE {condition}"
                ),
            ]
        )

    def _table_function(self) -> GeneratedQuery:
        """A table function of the user over rows, or over all rows as a table."""
        condition = self.condition(1)
        rows = f"(SELECT * FROM {{t}} WHERE {condition})"
        return self.rng.choice(
            [
                GeneratedQuery(f"SELECT id, made, text FROM {rows}, LATERAL {TWICE}(id, name)"),
                GeneratedQuery(
                    f"SELECT sum(made) FROM {TWICE}(TABLE(SELECT id, name FROM {{t}} WHERE {condition}))"
                ),
                GeneratedQuery(f"SELECT sum(rows) FROM {COUNTED}(TABLE{rows})"),
            ]
        )

    def _above_join(self) -> GeneratedQuery:
        """A search above an outer join, with projections between them."""
        kind = self.rng.choice(["LEFT", "FULL"])
        joined = f"SELECT k.id AS k, r.words FROM range(0, 90, 2) k {kind} JOIN (SELECT * FROM {{t}} WHERE {self.condition(0)}) r ON k.id = r.id"
        if self.rng.random() < 0.5:
            joined = f"SELECT k, w AS words FROM (SELECT k, words AS w FROM ({joined}))"
        word = self.rng.choice(["alpha", "beta", "error"])
        return self.rng.choice(
            [
                GeneratedQuery(f"SELECT k FROM ({joined}) WHERE NOT {{search:{word}}}"),
                GeneratedQuery(f"SELECT k, {{search:{word}}} AS found FROM ({joined})"),
                GeneratedQuery(
                    f"WITH j AS ({joined}) SELECT count(*) FROM j WHERE NOT {{search:{word}}} OR k < 9"
                ),
            ]
        )

    def _deep(self) -> GeneratedQuery:
        """Many terms, or terms within terms."""
        if self.rng.random() < 0.5:
            terms = [self._leaf() for _ in range(self.rng.choice([20, 60, 120]))]
            joined = self.rng.choice([" OR ", " AND "]).join(f"({term})" for term in terms)
            return GeneratedQuery(f"SELECT id FROM {{t}} WHERE {joined}")
        condition = self._leaf()
        for _ in range(self.rng.choice([10, 40, 70])):
            condition = f"NOT (id <> {self.rng.randrange(300)} AND ({condition}))"
        return GeneratedQuery(f"SELECT id FROM {{t}} WHERE {condition}")

    def _listed(self) -> GeneratedQuery:
        """A long list of values."""
        count = self.rng.choice([1, 10, 11, 17, 500, 3000])
        step = self.rng.choice([1, 3, 7])
        column, items = self.rng.choice(
            [
                ("id", [str(step * i) for i in range(count)]),
                ("whole", [str(step * i - count) for i in range(count)]),
                (
                    "name",
                    [literal(self.rng.choice(POOLS["name"]) or "x") for _ in range(5)]
                    + [f"'x{i}'" for i in range(count)],
                ),
                ("day", [f"date_from_unix_date({step * i})" for i in range(count)]),
                ("moment", [f"timestamp_seconds({86400 * step * i})" for i in range(min(count, 500))]),
            ]
        )
        items += self.rng.choice([[], [], ["NULL"]])
        negated = self.rng.choice(["", "NOT "])
        return GeneratedQuery(f"SELECT id FROM {{t}} WHERE {column} {negated}IN ({', '.join(items)})")

    def _edges(self) -> GeneratedQuery:
        """Values that other systems cannot hold."""
        operator = self.rng.choice(OPERATORS)
        moment = self.rng.choice(
            [
                "TIMESTAMP'9999-12-31 23:59:59'",
                "TIMESTAMP'0001-01-01 00:00:00'",
                "timestamp_micros(9200000000000000000)",
                "timestamp_micros(-9200000000000000000)",
            ]
        )
        text = self.rng.choice(["X'FF'", "X'61FF'", "X'EDA080'"])
        edge = self.rng.choice([f"moment {operator} {moment}", f"name {operator} CAST({text} AS STRING)"])
        return GeneratedQuery(
            f"SELECT id FROM {{t}} WHERE ({edge}) {self.rng.choice(['AND', 'OR'])} ({self.condition(0)})"
        )

    def _narrowed(self) -> GeneratedQuery:
        """A join whose other side tells the scan which values it wants."""
        few = f"SELECT id * {self.rng.choice([1, 3])} AS key FROM range({self.rng.choice([3, 50, 1200])}) WHERE id % 5 <> 2"
        column = self.rng.choice(["id", "whole", "MixedCase"])
        return GeneratedQuery(
            f"SELECT t.id, f.key FROM {{t}} t JOIN ({few}) f ON t.{column} = f.key WHERE {self.rng.choice(['TRUE', 't.id > 3'])}"
        )

    def _subquery(self) -> GeneratedQuery:
        """A subquery over the same table, one that searches its outer table among them."""
        condition = self.condition(0)
        return self.rng.choice(
            [
                GeneratedQuery(
                    f"SELECT id FROM {{t}} WHERE id > (SELECT avg(id) FROM {{t}} WHERE {condition})"
                ),
                GeneratedQuery(
                    "SELECT id FROM {t} o WHERE EXISTS (SELECT 1 FROM range(200) k WHERE k.id = o.id AND {search:alpha})"
                ),
                GeneratedQuery(
                    f"SELECT id FROM {{t}} WHERE id NOT IN (SELECT id FROM {{t}} WHERE {condition})"
                ),
            ]
        )
