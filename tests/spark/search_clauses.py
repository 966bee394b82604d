"""Queries with a search in every clause of SQL, and the plain expressions that searches stand for.

In the text of a query `[[word]]` is a search, `[[word d]]` the same of the table alias `d`, and `[[word d.text]]` of another
name for its column. `@notes` and `@owners` are tables, `@first` is an earlier version of `@notes`, and names that begin
with `@new` are created by the query itself. An ORDER BY of a whole query leaves no two rows in doubt.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Search:
    """A search of a column, and what Spark computes instead of it over a table without an index."""

    column: str
    operator: str
    plain: str


def word(term: str) -> str:
    return f"array_contains(split(lower({{c}}), ' '), '{term}')"


SEARCHES = {
    "timeout": Search("message", "{c} INDEXQUERY 'timeout'", word("timeout")),
    "refused": Search("message", "{c} INDEXQUERY 'refused'", word("refused")),
    "retry": Search("message", "{c} TEXTSEARCH 'Retry'", word("retry")),
    "without_timeout": Search("message", "{c} NOT INDEXQUERY 'timeout'", f"NOT {word('timeout')}"),
    "both": Search(
        "message", "{c} INDEXQUERY 'timeout AND refused'", f"{word('timeout')} AND {word('refused')}"
    ),
    "either": Search(
        "message", "{c} INDEXQUERY 'timeout OR refused'", f"{word('timeout')} OR {word('refused')}"
    ),
    "only": Search(
        "message", "{c} INDEXQUERY 'timeout AND NOT refused'", f"{word('timeout')} AND NOT {word('refused')}"
    ),
    "phrase": Search(
        "message",
        "{c} INDEXQUERY '\"connection refused\"'",
        "concat(' ', lower({c}), ' ') LIKE '% connection refused %'",
    ),
    "prefix": Search("message", "{c} INDEXQUERY 're*'", "exists(split(lower({c}), ' '), w -> w LIKE 're%')"),
    "regular": Search(
        "message",
        "{c} INDEXQUERY '/(time|log)out/'",
        "exists(split(lower({c}), ' '), w -> w RLIKE '^(time|log)out$')",
    ),
    "error": Search("level", "{c} FIELDMATCH 'ERROR'", "{c} = 'ERROR'"),
    "warn": Search("level", "{c} INDEXQUERY 'WARN'", "{c} = 'WARN'"),
    "loud": Search("level", "{c} INDEXQUERY 'ERROR OR WARN'", "{c} IN ('ERROR', 'WARN')"),
    "slow": Search("ms", "{c} INDEXQUERY '>=500'", "{c} >= 500"),
    "middle": Search("ms", "{c} INDEXQUERY '[100 TO 300}}'", "{c} >= 100 AND {c} < 300"),
    "early": Search("day", "{c} INDEXQUERY '[2024-05-01 TO 2024-05-03]'", "{c} <= DATE '2024-05-03'"),
    "red": Search("tags", "{c} INDEXQUERY 'red'", "array_contains({c}, 'red')"),
    "block": Search("client", "{c} INDEXQUERY '10.0.1.0/24'", "{c} LIKE '10.0.1.%'"),
    "paris": Search("place", "{c} INDEXQUERY 'place.city:Paris'", "{c}.city = 'Paris'"),
    "expert": Search("about", "{c} INDEXQUERY 'expert'", word("expert")),
    "novice": Search("about", "{c} INDEXQUERY 'novice'", word("novice")),
    "ann": Search("name", "{c} FIELDMATCH 'ann'", "{c} = 'ann'"),
}

# What is no search of one column: a search of all strings and texts, a score, a fragment, a bucket.
_ANYWHERE = f"(coalesce({{q}}level = 'WARN', false) OR coalesce({{q}}team = 'WARN', false) OR coalesce({word('warn').format(c='{q}message')}, false))"
OTHERS = {
    "everywhere": ("{q}_indexall INDEXQUERY 'WARN'", _ANYWHERE),
    "star": ("* INDEXQUERY 'WARN'", _ANYWHERE),
    "function": ("indexqueryall('WARN')", _ANYWHERE),
    # A word with a wildcard and a range count 1 each.
    "score": (
        "{q}_score",
        "cast(coalesce(exists(split(lower({q}message), ' '), w -> w LIKE 're%'), false) AS float) + cast(coalesce({q}ms >= 500, false) AS float)",
    ),
    "fragment": ("highlight({q}message)", "regexp_replace({q}message, '((?i:timeout))', '<b>$1</b>')"),
    "hundreds": ("indextables_histogram({q}ms, 100)", "cast(floor({q}ms / 100) * 100 AS double)"),
    "two_days": (
        "indextables_date_histogram({q}day, '2d')",
        "cast(date_from_unix_date(cast(floor(unix_date({q}day) / 2) * 2 AS int)) AS timestamp)",
    ),
    "speed": (
        "indextables_range({q}ms, 'fast', NULL, 200, 'slow', 200, NULL)",
        "CASE WHEN {q}ms < 200 THEN 'fast' WHEN {q}ms >= 200 THEN 'slow' END",
    ),
}

_MACRO = re.compile(r"\[\[(\w+)(?: (\w+)(?:\.(\w+))?)?\]\]")


def ours(sql: str, names: Mapping[str, str]) -> str:
    """The text with search operators."""

    def operator(key: str, qualifier: str, column: str | None) -> str:
        if key in OTHERS:
            return OTHERS[key][0].format(q=qualifier)
        search = SEARCHES[key]
        return search.operator.format(c=f"{qualifier}{column or search.column}")

    return _expand(sql, names, operator)


def plain(sql: str, names: Mapping[str, str]) -> str:
    """The text with expressions of Spark alone. A search is false for NULL, never unknown."""

    def expression(key: str, qualifier: str, column: str | None) -> str:
        if key in OTHERS:
            return OTHERS[key][1].format(q=qualifier)
        search = SEARCHES[key]
        whole = search.plain.format(c=f"{qualifier}{column or search.column}")
        inner = whole.removeprefix("NOT ")
        return f"NOT coalesce({inner}, false)" if inner != whole else f"coalesce({whole}, false)"

    return _expand(sql, names, expression)


def _expand(sql: str, names: Mapping[str, str], text: Callable[..., str]) -> str:
    def put(match: re.Match[str]) -> str:
        key, alias, column = match.groups()
        return f"({text(key, f'{alias}.' if alias else '', column)})"

    return re.sub(r"@\w+", lambda match: names[match[0][1:]], _MACRO.sub(put, sql))


QUERIES = {
    # SELECT list
    "select": "SELECT id, [[timeout]] AS hit FROM @notes",
    "select several": "SELECT id, [[timeout]] a, [[phrase]] b, [[error]] c, [[slow]] d, [[red]] e, [[block]] f, [[paris]] g FROM @notes",
    "select all columns": "SELECT *, [[either]] AS hit FROM @notes WHERE id < 200",
    "select negated": "SELECT id, NOT [[timeout]] AS miss, [[without_timeout]] AS miss_too FROM @notes",
    "select in arithmetic": "SELECT id, cast([[timeout]] AS int) + cast([[refused]] AS int) * 2 AS kind FROM @notes",
    "select in functions": "SELECT id, if([[timeout]], level, NULL) x, nvl2(nullif([[error]], true), 1, 2) y FROM @notes",
    "select in a struct": "SELECT id, named_struct('hit', [[timeout]], 'loud', [[loud]]) AS s, array([[red]], [[slow]]) AS a FROM @notes",
    "select everywhere": "SELECT id, [[everywhere n]] AS hit FROM @notes n",
    # CASE
    "case": "SELECT id, CASE WHEN [[both]] THEN 'both' WHEN [[timeout]] THEN 't' WHEN [[refused]] THEN 'r' END AS k FROM @notes",
    "case else": "SELECT id, CASE WHEN [[slow]] THEN ms ELSE -1 END AS k FROM @notes WHERE [[loud]]",
    "case of a search": "SELECT id, CASE [[timeout]] WHEN true THEN 'yes' WHEN false THEN 'no' ELSE 'never' END k FROM @notes",
    "case in where": "SELECT id FROM @notes WHERE CASE WHEN level = 'INFO' THEN [[timeout]] ELSE [[refused]] END",
    "case in an aggregate": "SELECT sum(CASE WHEN [[timeout]] THEN ms ELSE 0 END) s, count(CASE WHEN [[red]] THEN 1 END) c FROM @notes",
    # WHERE, AND, OR, NOT
    "where": "SELECT id FROM @notes WHERE [[timeout]]",
    "where phrase": "SELECT id FROM @notes WHERE [[phrase]]",
    "where prefix": "SELECT id FROM @notes WHERE [[prefix]]",
    "where regular expression": "SELECT id FROM @notes WHERE [[regular]]",
    "where number range": "SELECT id, ms FROM @notes WHERE [[middle]]",
    "where date range": "SELECT id, day FROM @notes WHERE [[early]]",
    "where array": "SELECT id, tags FROM @notes WHERE [[red]]",
    "where address": "SELECT id, client FROM @notes WHERE [[block]]",
    "where struct": "SELECT id, place FROM @notes WHERE [[paris]]",
    "where all fields": "SELECT id FROM @notes WHERE [[star]]",
    "where all fields by function": "SELECT id FROM @notes WHERE [[function]] AND NOT [[slow]]",
    "where and": "SELECT id FROM @notes WHERE [[timeout]] AND [[error]] AND ms > 100",
    "where or": "SELECT id FROM @notes WHERE [[timeout]] OR [[error]] OR ms > 900",
    "where not": "SELECT id FROM @notes WHERE NOT [[timeout]]",
    "where not and": "SELECT id FROM @notes WHERE NOT ([[timeout]] AND [[error]])",
    "where not or": "SELECT id FROM @notes WHERE NOT ([[timeout]] OR level = 'INFO')",
    "where not null": "SELECT id FROM @notes WHERE message IS NOT NULL AND NOT [[either]]",
    "where null or": "SELECT id FROM @notes WHERE message IS NULL OR [[only]]",
    "where nested": "SELECT id FROM @notes WHERE ([[timeout]] OR ([[red]] AND NOT ([[slow]] OR [[block]]))) AND (team = 'a' OR [[paris]])",
    "where equal searches": "SELECT id FROM @notes WHERE [[timeout]] = [[refused]]",
    "where is true": "SELECT id FROM @notes WHERE [[timeout]] IS NOT TRUE AND [[loud]] IS TRUE",
    "where residual": "SELECT id FROM @notes WHERE length(message) % 2 = 0 AND ([[timeout]] OR length(level) = 4)",
    "where in a function": "SELECT id FROM @notes WHERE coalesce(ms > 500, [[timeout]])",
    "where never": "SELECT count(*) FROM @notes WHERE [[timeout]] AND NOT [[timeout]]",
    "where always": "SELECT count(*) FROM @notes WHERE [[timeout]] OR NOT [[timeout]]",
    # aggregates, FILTER, GROUP BY, HAVING
    "count": "SELECT count(*) FROM @notes WHERE [[timeout]]",
    "aggregates": "SELECT count(ms), sum(ms), min(day), max(message), avg(ms) FROM @notes WHERE [[either]]",
    "aggregate filter": "SELECT count(*) FILTER (WHERE [[timeout]]) a, sum(ms) FILTER (WHERE [[red]] AND [[loud]]) b FROM @notes",
    "aggregate filter by group": "SELECT team, count(*) FILTER (WHERE NOT [[timeout]]) a, max(id) FILTER (WHERE [[slow]]) b FROM @notes GROUP BY team",
    "aggregate of a search": "SELECT count_if([[timeout]]), bool_or([[both]]), every([[prefix]]), max([[refused]]) FROM @notes",
    "count distinct search": "SELECT level, count(DISTINCT [[timeout]]) FROM @notes GROUP BY level",
    "group by": "SELECT level, count(*), sum(ms) FROM @notes WHERE [[timeout]] GROUP BY level",
    "group by search": "SELECT [[timeout]] AS hit, count(*) FROM @notes GROUP BY [[timeout]]",
    "group by alias": "SELECT [[timeout]] AS hit, team, count(*), avg(ms) FROM @notes GROUP BY hit, team",
    "group by position": "SELECT [[red]], [[slow]], count(*) FROM @notes WHERE NOT [[error]] GROUP BY 1, 2",
    "group by case": "SELECT CASE WHEN [[timeout]] THEN 't' ELSE level END AS k, count(*) FROM @notes GROUP BY k",
    "group by all": "SELECT [[block]] AS b, team, count(*) FROM @notes GROUP BY ALL",
    "grouping sets": "SELECT [[timeout]] AS hit, team, count(*) FROM @notes GROUP BY GROUPING SETS ((hit), (team), ())",
    "rollup": "SELECT team, [[loud]] AS l, count(*) FROM @notes GROUP BY ROLLUP (team, l)",
    "cube": "SELECT team, [[loud]] AS l, grouping_id(), count(*) FROM @notes GROUP BY CUBE (team, l)",
    "having": "SELECT team, count(*) FROM @notes GROUP BY team HAVING count_if([[timeout]]) > count_if([[refused]])",
    "having filter": "SELECT owner FROM @notes GROUP BY owner HAVING count(*) FILTER (WHERE [[timeout]]) >= 10",
    "having on a grouping column": "SELECT level, count(*) FROM @notes GROUP BY level HAVING [[loud]]",
    "having case": "SELECT owner, sum(ms) FROM @notes GROUP BY owner HAVING sum(CASE WHEN [[error]] THEN 1 ELSE 0 END) > 20",
    "histogram": "SELECT [[hundreds]] AS h, count(*) FROM @notes WHERE [[timeout]] GROUP BY h",
    "histogram above a search": "SELECT id, [[hundreds]] AS h FROM @notes WHERE [[both]] AND [[hundreds]] > 200",
    "date histogram": "SELECT [[two_days]] AS h, count_if([[timeout]]) FROM @notes GROUP BY h",
    "range": "SELECT [[speed]] AS r, count(*), max(id) FROM @notes WHERE [[loud]] GROUP BY r",
    "range in having": "SELECT [[speed]] AS r, count(*) FROM @notes GROUP BY r HAVING count_if([[timeout]]) > 50",
    # scores and fragments
    "score": "SELECT id, [[score]] AS s FROM @notes WHERE [[prefix]] OR [[slow]]",
    "order by score": "SELECT id FROM @notes WHERE [[prefix]] OR [[slow]] ORDER BY [[score]] DESC, id LIMIT 60",
    "score in a condition": "SELECT id FROM @notes WHERE ([[prefix]] OR [[slow]]) AND [[score]] > 1",
    "group by score": "SELECT [[score]] AS s, count(*) FROM @notes WHERE [[prefix]] OR [[slow]] GROUP BY s",
    "fragment": "SELECT id, [[fragment]] AS f FROM @notes WHERE [[timeout]]",
    "fragment in a join": "SELECT n.id, o.name, [[fragment n]] AS f FROM @notes n JOIN @owners o ON n.owner = o.owner WHERE [[timeout n]]",
    # ORDER BY, LIMIT, OFFSET, DISTINCT
    "order by search": "SELECT id FROM @notes ORDER BY [[timeout]] DESC, id",
    "order by searches": "SELECT id, level FROM @notes WHERE ms > 300 ORDER BY [[error]], [[red]] DESC, id DESC",
    "order by case": "SELECT id FROM @notes ORDER BY CASE WHEN [[both]] THEN 0 WHEN [[either]] THEN 1 ELSE 2 END, id",
    "order by alias": "SELECT id, [[slow]] AS s FROM @notes ORDER BY s, id",
    "order by limit": "SELECT id, message FROM @notes WHERE [[timeout]] ORDER BY id DESC LIMIT 7",
    "order by search limit": "SELECT id FROM @notes ORDER BY [[phrase]] DESC, id LIMIT 25",
    "order by offset": "SELECT id FROM @notes WHERE [[loud]] ORDER BY id LIMIT 10 OFFSET 15",
    "order by nulls": "SELECT id, ms FROM @notes WHERE [[refused]] ORDER BY ms NULLS LAST, id LIMIT 400",
    "order by aggregate": "SELECT team, count(*) FROM @notes GROUP BY team ORDER BY count_if([[timeout]]) DESC, team",
    "limit": "SELECT count(*) FROM (SELECT id FROM @notes WHERE [[timeout]] LIMIT 9)",
    "offset": "SELECT count(*) FROM (SELECT id FROM @notes WHERE [[timeout]] OFFSET 40)",
    "distinct": "SELECT DISTINCT level, [[timeout]] AS hit FROM @notes",
    "distinct where": "SELECT DISTINCT owner FROM @notes WHERE [[both]] AND [[red]]",
    "distinct order by": "SELECT DISTINCT team, [[slow]] AS s FROM @notes WHERE [[either]] ORDER BY team, s",
    # JOIN
    "inner join where": "SELECT n.id, o.name FROM @notes n JOIN @owners o ON n.owner = o.owner WHERE [[timeout n]] AND [[expert o]]",
    "inner join on": "SELECT n.id, o.name FROM @notes n JOIN @owners o ON n.owner = o.owner AND [[timeout n]] AND [[expert o]]",
    "inner join on or": "SELECT n.id, o.name FROM @notes n JOIN @owners o ON n.owner = o.owner AND ([[timeout n]] OR [[expert o]])",
    "join using": "SELECT id, name FROM @notes n JOIN @owners o USING (owner) WHERE [[timeout n]] <> [[expert o]]",
    "natural join": "SELECT id, name FROM @notes NATURAL JOIN @owners WHERE [[both]] OR [[novice]]",
    "left join on left": "SELECT n.id, o.name FROM @notes n LEFT JOIN @owners o ON n.owner = o.owner AND [[timeout n]]",
    "left join on right": "SELECT n.id, o.name FROM @notes n LEFT JOIN @owners o ON n.owner = o.owner AND [[expert o]]",
    "left join where right": "SELECT n.id, o.name FROM @notes n LEFT JOIN @owners o ON n.owner = o.owner WHERE NOT [[expert o]]",
    "left join select": "SELECT n.id, [[expert o]] AS e, [[timeout n]] AS t FROM @notes n LEFT JOIN @owners o ON n.owner = o.owner",
    "right join on": "SELECT n.id, o.name FROM @notes n RIGHT JOIN @owners o ON n.owner = o.owner AND [[both n]] AND [[expert o]]",
    "right join where": "SELECT n.id, o.name FROM @notes n RIGHT JOIN @owners o ON n.owner = o.owner WHERE NOT [[either n]]",
    "full join on": "SELECT n.id, o.name FROM @notes n FULL JOIN @owners o ON n.owner = o.owner AND [[timeout n]] AND [[novice o]]",
    "full join where": "SELECT n.id, o.name FROM @notes n FULL JOIN @owners o ON n.owner = o.owner WHERE [[timeout n]] OR NOT [[novice o]]",
    "semi join": "SELECT o.owner FROM @owners o LEFT SEMI JOIN @notes n ON n.owner = o.owner AND [[both n]] AND [[slow n]]",
    "semi join of the left": "SELECT o.owner FROM @owners o LEFT SEMI JOIN @notes n ON n.owner = o.owner AND [[expert o]]",
    "anti join": "SELECT n.id FROM @notes n LEFT ANTI JOIN @owners o ON n.owner = o.owner AND [[expert o]]",
    "anti join of both": "SELECT n.id FROM @notes n LEFT ANTI JOIN @owners o ON n.owner = o.owner AND ([[timeout n]] OR [[expert o]])",
    "cross join": "SELECT n.id, o.owner FROM @notes n CROSS JOIN @owners o WHERE [[both n]] AND [[expert o]] AND [[paris n]]",
    "join without equality": "SELECT n.id, o.owner FROM @notes n JOIN @owners o ON [[phrase n]] AND [[ann o]] AND n.owner < o.owner",
    "join on equal searches": "SELECT count(*) FROM @notes n JOIN @owners o ON [[timeout n]] = [[expert o]] AND n.owner = o.owner",
    "self join": "SELECT a.id, b.id FROM @notes a JOIN @notes b ON a.id = b.id + 1 WHERE [[timeout a]] AND [[refused b]]",
    "self join of searches": "SELECT a.id, b.id FROM @notes a LEFT JOIN @notes b ON a.id = b.id + 1 AND [[timeout a]] AND NOT [[timeout b]]",
    "join everywhere": "SELECT n.id, o.name FROM @notes n JOIN @owners o ON n.owner = o.owner WHERE [[everywhere n]] AND [[expert o]]",
    "lateral join": "SELECT o.owner, x.c FROM @owners o, LATERAL (SELECT count(*) c FROM @notes n WHERE n.owner = o.owner AND [[timeout n]]) x",
    "three tables": "SELECT n.id FROM @notes n JOIN @owners o ON n.owner = o.owner JOIN @notes m ON m.id = n.id - 7 WHERE [[red m]] AND [[expert o]] AND [[timeout n]]",
    # subqueries
    "scalar subquery": "SELECT id FROM @notes WHERE ms > (SELECT avg(ms) FROM @notes WHERE [[timeout]]) AND [[refused]]",
    "scalar subquery in select": "SELECT o.owner, (SELECT max(id) FROM @notes n WHERE n.owner = o.owner AND [[both n]]) AS m FROM @owners o",
    "scalar subquery of the outer": "SELECT n.id, (SELECT max(name) FROM @owners o WHERE o.owner = n.owner AND [[timeout n]]) m FROM @notes n",
    "scalar subquery in having": "SELECT team FROM @notes GROUP BY team HAVING count(*) > (SELECT count(*) FROM @notes WHERE [[timeout]] AND [[slow]])",
    "scalar subquery in order by": "SELECT id FROM @notes WHERE [[both]] ORDER BY id * (SELECT count(*) FROM @owners WHERE [[expert]])",
    "in": "SELECT id FROM @notes WHERE owner IN (SELECT owner FROM @owners WHERE [[expert]]) AND [[timeout]]",
    "not in": "SELECT id FROM @notes WHERE owner NOT IN (SELECT owner FROM @owners WHERE [[expert]] AND owner > 0) AND [[timeout]]",
    "not in null": "SELECT count(*) FROM @notes WHERE owner NOT IN (SELECT owner FROM @owners WHERE [[expert]]) AND [[timeout]]",
    "in or": "SELECT id FROM @notes WHERE owner IN (SELECT owner FROM @owners WHERE [[expert]]) OR [[both]]",
    "search in a list": "SELECT owner FROM @owners WHERE [[expert]] IN (SELECT [[phrase]] FROM @notes WHERE id < 5)",
    "exists": "SELECT owner FROM @owners o WHERE EXISTS (SELECT 1 FROM @notes n WHERE n.owner = o.owner AND [[both n]] AND [[red n]])",
    "not exists": "SELECT owner FROM @owners o WHERE NOT EXISTS (SELECT 1 FROM @notes n WHERE n.owner = o.owner AND [[both n]] AND [[red n]])",
    "exists or": "SELECT owner FROM @owners o WHERE [[novice o]] OR EXISTS (SELECT 1 FROM @notes n WHERE n.owner = o.owner AND [[both n]] AND [[red n]])",
    "exists of the outer": "SELECT id FROM @notes n WHERE EXISTS (SELECT 1 FROM @owners o WHERE o.owner = n.owner AND ([[timeout n]] OR [[expert o]]))",
    "exists of the outer and a column": "SELECT id FROM @notes n WHERE EXISTS (SELECT 1 FROM @owners o WHERE o.owner = n.owner AND (n.ms > 500 OR [[expert o]]))",
    "not exists of the outer": "SELECT id FROM @notes n WHERE NOT EXISTS (SELECT 1 FROM @owners o WHERE o.owner = n.owner AND ([[timeout n]] OR [[expert o]]))",
    "in of the outer": "SELECT id FROM @notes n WHERE owner IN (SELECT o.owner FROM @owners o WHERE [[timeout n]] AND n.team = 'a' OR [[expert o]])",
    "not in of the outer": "SELECT id FROM @notes n WHERE owner NOT IN (SELECT o.owner FROM @owners o WHERE o.owner > 0 AND ([[both n]] OR [[expert o]]))",
    "exists of the outer in a view": "CREATE OR REPLACE TEMP VIEW @new_mixed AS SELECT id, message FROM @notes n WHERE EXISTS (SELECT 1 FROM @owners o WHERE o.owner = n.owner AND ([[slow n]] OR [[expert o]])); SELECT id FROM @new_mixed WHERE [[timeout]]",
    "derived table": "SELECT t.words FROM (SELECT id, message AS words FROM @notes WHERE [[error]]) t WHERE [[timeout t.words]]",
    "derived search": "SELECT hit, count(*) FROM (SELECT [[timeout]] AS hit, team FROM @notes) WHERE team <> 'a' GROUP BY hit",
    "above a limit": "SELECT id FROM (SELECT id, message FROM @notes ORDER BY id LIMIT 300) WHERE [[timeout]]",
    "above an aggregate": "SELECT level, c FROM (SELECT level, count(*) c FROM @notes GROUP BY level) WHERE NOT [[error]]",
    "above a distinct": "SELECT message FROM (SELECT DISTINCT message FROM @notes WHERE id < 500) WHERE [[timeout]]",
    # WITH, views
    "with": "WITH t AS (SELECT * FROM @notes WHERE [[timeout]]) SELECT id FROM t WHERE [[refused]]",
    "with twice": "WITH t AS (SELECT id, owner, message FROM @notes WHERE [[either]]) SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id + 2 WHERE [[timeout a]] AND NOT [[refused b]]",
    "with nested": "WITH a AS (SELECT id, message m FROM @notes), b AS (SELECT id, m AS w FROM a WHERE [[timeout a.m]]) SELECT id FROM b WHERE [[refused b.w]]",
    "view": "CREATE OR REPLACE TEMP VIEW @new_view AS SELECT id, message, [[loud]] AS l FROM @notes WHERE [[either]]; SELECT id, l FROM @new_view WHERE [[timeout]]",
    "view of a view": "CREATE OR REPLACE TEMP VIEW @new_a AS SELECT * FROM @notes WHERE NOT [[red]]; CREATE OR REPLACE TEMP VIEW @new_b AS SELECT id, message AS w FROM @new_a v WHERE [[slow v]]; SELECT id FROM @new_b b WHERE NOT [[timeout b.w]]",
    # set operations
    "union all": "SELECT id FROM @notes WHERE [[timeout]] UNION ALL SELECT id FROM @notes WHERE [[refused]]",
    "union": "SELECT level, [[timeout]] x FROM @notes UNION SELECT team, [[red]] FROM @notes",
    "union of tables": "SELECT owner FROM @notes WHERE [[both]] UNION SELECT owner FROM @owners WHERE [[expert]]",
    "search above a union": "SELECT id FROM (SELECT id, message FROM @notes WHERE [[red]] UNION ALL SELECT id, message FROM @notes WHERE [[slow]]) WHERE [[timeout]]",
    "intersect": "SELECT id FROM @notes WHERE [[timeout]] INTERSECT SELECT id FROM @notes WHERE [[refused]]",
    "intersect all": "SELECT owner FROM @notes WHERE [[timeout]] INTERSECT ALL SELECT owner FROM @notes WHERE [[red]]",
    "except": "SELECT id FROM @notes WHERE [[timeout]] EXCEPT SELECT id FROM @notes WHERE [[error]]",
    "except all": "SELECT owner FROM @notes WHERE [[timeout]] EXCEPT ALL SELECT owner FROM @notes WHERE [[slow]]",
    "minus in order": "SELECT id FROM @notes MINUS SELECT id FROM @notes WHERE [[either]] ORDER BY id",
    # windows
    "window partition by search": "SELECT id, row_number() OVER (PARTITION BY [[timeout]], team ORDER BY id) r FROM @notes",
    "window order by search": "SELECT id, row_number() OVER (PARTITION BY team ORDER BY [[timeout]] DESC, id) r FROM @notes",
    "window of a search": "SELECT id, count_if([[timeout]]) OVER (PARTITION BY owner ORDER BY id) c, lag([[error]]) OVER (ORDER BY id) l FROM @notes WHERE id < 400",
    "window filter": "SELECT id, sum(ms) FILTER (WHERE [[red]]) OVER (PARTITION BY owner ORDER BY id) s FROM @notes",
    "window frame": "SELECT id, bool_or([[both]]) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 3 FOLLOWING) b FROM @notes WHERE [[loud]]",
    "named window": "SELECT id, rank() OVER w FROM @notes WHERE [[either]] WINDOW w AS (PARTITION BY level ORDER BY [[slow]], id)",
    "first of a window": "SELECT id FROM (SELECT id, message, row_number() OVER (PARTITION BY owner ORDER BY id) r FROM @notes) WHERE r <= 5 AND [[timeout]]",
    "best of a window": "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY owner ORDER BY [[timeout]] DESC, id) r FROM @notes) WHERE r = 1",
    "qualify": "SELECT id FROM @notes WHERE [[loud]] QUALIFY row_number() OVER (PARTITION BY owner ORDER BY [[timeout]] DESC, id) = 1",
    # LATERAL VIEW, generators, PIVOT, UNPIVOT, other relations
    "lateral view": "SELECT id, tag FROM @notes LATERAL VIEW explode(tags) t AS tag WHERE [[timeout]]",
    "lateral view outer": "SELECT id, tag, [[timeout]] AS hit FROM @notes LATERAL VIEW OUTER explode(tags) t AS tag WHERE NOT [[red]]",
    "explode": "SELECT id, explode(array([[timeout]], [[refused]])) AS hit FROM @notes",
    "words of a match": "SELECT w, count(*) FROM (SELECT explode(split(message, ' ')) AS w FROM @notes WHERE [[timeout]]) GROUP BY w",
    "pivot": "SELECT * FROM (SELECT team, level, ms FROM @notes WHERE [[timeout]]) PIVOT (sum(ms) FOR level IN ('ERROR', 'WARN'))",
    "pivot by search": "SELECT * FROM (SELECT team, [[timeout]] AS hit, ms FROM @notes) PIVOT (count(ms) FOR hit IN (true AS yes, false AS no))",
    "unpivot": "SELECT * FROM (SELECT id, [[timeout]] AS t, [[refused]] AS r FROM @notes) UNPIVOT (hit FOR kind IN (t, r))",
    "join of values": "SELECT id, v.x FROM @notes n JOIN (VALUES (1, 'one'), (2, 'two')) AS v(owner, x) ON n.owner = v.owner AND [[timeout n]]",
    "pipe": "FROM @notes |> WHERE [[timeout]] |> AGGREGATE count(*) AS c GROUP BY team |> ORDER BY team",
    # sources of writes
    "create table as": "CREATE TABLE @new_ctas USING parquet AS SELECT id, [[red]] AS r FROM @notes WHERE [[timeout]]; SELECT * FROM @new_ctas",
    "create our table as": "CREATE TABLE @new_ours USING indextables AS SELECT id, message, [[red]] AS r FROM @notes WHERE [[timeout]]; SELECT id, r FROM @new_ours WHERE message LIKE '%refused%'",
    "insert select": "CREATE TABLE @new_sink (id BIGINT, hit BOOLEAN) USING parquet; INSERT INTO @new_sink SELECT id, [[refused]] FROM @notes WHERE [[loud]]; SELECT * FROM @new_sink",
    "insert overwrite": "CREATE TABLE @new_over (id BIGINT) USING parquet; INSERT OVERWRITE @new_over SELECT id FROM @notes WHERE [[both]] OR [[paris]]; SELECT * FROM @new_over",
    "insert into ours": "CREATE TABLE @new_into (id BIGINT, words STRING) USING indextables; INSERT INTO @new_into SELECT id, message FROM @notes WHERE [[without_timeout]]; SELECT id FROM @new_into",
    "multiple inserts": "CREATE TABLE @new_m1 (id BIGINT) USING parquet; CREATE TABLE @new_m2 (id BIGINT) USING parquet; FROM @notes INSERT INTO @new_m1 SELECT id WHERE [[timeout]] INSERT INTO @new_m2 SELECT id WHERE NOT [[timeout]]; SELECT 1, id FROM @new_m1 UNION ALL SELECT 2, id FROM @new_m2",
    # time travel
    "version": "SELECT id FROM @first WHERE [[timeout]]",
    "versions together": "SELECT n.id FROM @notes n LEFT ANTI JOIN @first f ON n.id = f.id WHERE [[timeout n]]",
    "version in a subquery": "SELECT count(*), (SELECT count(*) FROM @first WHERE [[timeout]]) FROM @notes WHERE [[timeout]]",
    "version in except": "SELECT id FROM @notes WHERE [[red]] EXCEPT SELECT id FROM @first WHERE [[red]]",
    # samples of one seed differ by how rows are distributed; a whole sample does not
    "sample": "SELECT id FROM @notes TABLESAMPLE (100 PERCENT) WHERE [[timeout]]",
}
