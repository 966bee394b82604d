"""SQL conditions: what every form becomes, what is refused and where."""

import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from indextables.errors import PredicateError, QuerySyntaxError
from indextables.predicate import (
    Always,
    And,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Search,
    SearchKind,
    TextMatch,
    TextMatchKind,
    parse_condition,
)
from tests.predicate.condition_rows import SCHEMA, shape

TABLE = pa.schema(
    [
        *SCHEMA,
        ("TextSearch", pa.string()),
        ("fieldmatch", pa.string()),
        ("in", pa.int32()),
        ("date", pa.date32()),
        ("a.b", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("twice", pa.struct([("x", pa.int32()), ("X", pa.int32())])),
    ]
)


def col(*path: str) -> Column:
    return Column(path)


def cmp(op: Op, name: str, value: Any, type_: Any) -> Compare:
    return Compare(op, col(*name.split(".")), pa.scalar(value, type_))


def eq(name: str, value: Any, type_: Any) -> Compare:
    return cmp(Op.EQ, name, value, type_)


def never(name: str) -> And:
    return And((IsNull(col(name)), Always(None)))


def true_unless_null(name: str) -> Or:
    return Or((Not(IsNull(col(name))), Always(None)))


WHOLE_1 = eq("whole", 1, pa.int32())
FLAG = eq("flag", True, pa.bool_())
WORD_A = eq("word", "a", pa.string())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # operators and their binding
        ("whole = 1", WHOLE_1),
        ("WHOLE == 1", WHOLE_1),
        ("1 = whole", WHOLE_1),
        ("`whole`=(1)", WHOLE_1),
        ("(whole) = 1", WHOLE_1),
        ("whole <> 1", Not(WHOLE_1)),
        ("whole != 1", Not(WHOLE_1)),
        ("5 < whole", cmp(Op.GT, "whole", 5, pa.int32())),
        ("5 >= whole", cmp(Op.LE, "whole", 5, pa.int32())),
        ("whole !> 5", cmp(Op.LE, "whole", 5, pa.int32())),
        ("whole !< 5", cmp(Op.GE, "whole", 5, pa.int32())),
        ("whole <=> 1", cmp(Op.NULL_SAFE, "whole", 1, pa.int32())),
        ("whole <=> NULL", IsNull(col("whole"))),
        ("NULL <=> whole", IsNull(col("whole"))),
        ("whole = NULL", Always(None)),
        ("whole <> NULL", Always(None)),
        ("flag", FLAG),
        ("NOT flag", Not(FLAG)),
        ("! flag", Not(FLAG)),
        ("NOT NOT flag", FLAG),
        ("NOT (NOT flag)", FLAG),
        ("flag = TRUE", FLAG),
        ("flag AND whole = 1 OR word = 'a'", Or((And((FLAG, WHOLE_1)), WORD_A))),
        ("flag AND (whole = 1 OR word = 'a')", And((FLAG, Or((WHOLE_1, WORD_A))))),
        ("flag AND (whole = 1 AND word = 'a')", And((FLAG, WHOLE_1, WORD_A))),
        ("NOT whole = 1 AND flag", And((Not(WHOLE_1), FLAG))),
        ("whole = 1 = true", WHOLE_1),
        ("(whole = 1) = false", Not(WHOLE_1)),
        ("1 = 1 AND flag", And((Always(True), FLAG))),
        ("'a' < 'b'", Always(True)),
        ("2 <=> NULL", Always(False)),
        ("NULL <=> NULL", Always(True)),
        ("1 > '2'", Always(False)),
        ("TRUE", Always(True)),
        ("NOT NULL", Always(None)),
        # tests
        ("whole IS NULL", IsNull(col("whole"))),
        ("whole IS NOT NULL", Not(IsNull(col("whole")))),
        ("isnull(whole)", IsNull(col("whole"))),
        ("isnotnull(tags)", Not(IsNull(col("tags")))),
        ("nested IS NULL", IsNull(col("nested"))),
        ("3 IS NULL", Always(False)),
        ("flag IS TRUE", cmp(Op.NULL_SAFE, "flag", True, pa.bool_())),
        ("flag IS NOT FALSE", Not(cmp(Op.NULL_SAFE, "flag", False, pa.bool_()))),
        ("flag IS UNKNOWN", IsNull(col("flag"))),
        ("(whole = 1) IS TRUE", And((Not(IsNull(col("whole"))), WHOLE_1))),
        ("whole IS DISTINCT FROM 1", Not(cmp(Op.NULL_SAFE, "whole", 1, pa.int32()))),
        ("whole IS NOT DISTINCT FROM 1", cmp(Op.NULL_SAFE, "whole", 1, pa.int32())),
        ("isnan(real)", cmp(Op.NULL_SAFE, "real", math.nan, pa.float64())),
        (
            "whole BETWEEN 1 AND 5 AND flag",
            And((cmp(Op.GE, "whole", 1, pa.int32()), cmp(Op.LE, "whole", 5, pa.int32()), FLAG)),
        ),
        (
            "whole NOT BETWEEN 1 AND 5",
            Not(And((cmp(Op.GE, "whole", 1, pa.int32()), cmp(Op.LE, "whole", 5, pa.int32())))),
        ),
        ("whole IN (1, 2)", In(col("whole"), (pa.scalar(1, pa.int32()), pa.scalar(2, pa.int32())))),
        (
            "whole NOT IN (1, NULL)",
            Not(In(col("whole"), (pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32())))),
        ),
        ("whole IN (NULL)", Always(None)),
        ("whole IN (1.5)", never("whole")),
        ("whole IN (1, 2.5)", In(col("whole"), (pa.scalar(1, pa.int32()),))),
        ("1 IN (whole, 5)", Or((WHOLE_1, Always(False)))),
        ("word LIKE 'a%b'", Like(col("word"), "a%b")),
        ("word NOT LIKE 'a_'", Not(Like(col("word"), "a_"))),
        ("word LIKE 'a!_!%_' ESCAPE '!'", Like(col("word"), "a!_!%_", "!")),
        ("word ILIKE 'a'", Like(col("word"), "a", ignore_case=True)),
        ("word LIKE 'a'", WORD_A),
        ("word LIKE 'a%'", TextMatch(TextMatchKind.STARTS, col("word"), "a")),
        ("word LIKE '%a'", TextMatch(TextMatchKind.ENDS, col("word"), "a")),
        ("word LIKE '%a%'", TextMatch(TextMatchKind.CONTAINS, col("word"), "a")),
        ("word LIKE '%'", true_unless_null("word")),
        ("word LIKE '50\\%'", eq("word", "50%", pa.string())),
        ("word LIKE NULL", Always(None)),
        ("word LIKE ANY ('a', 'b_')", Or((WORD_A, Like(col("word"), "b_")))),
        ("word LIKE ALL ('a', 'b_')", And((WORD_A, Like(col("word"), "b_")))),
        ("startswith(word, 'a')", TextMatch(TextMatchKind.STARTS, col("word"), "a")),
        ("EndsWith(word, 'a')", TextMatch(TextMatchKind.ENDS, col("word"), "a")),
        ("contains(word, 'a') = false", Not(TextMatch(TextMatchKind.CONTAINS, col("word"), "a"))),
        ("contains(word, NULL)", Always(None)),
        # names
        ("NESTED.Whole = 1", eq("nested.whole", 1, pa.int32())),
        ("nested.inner.word = 'a'", eq("nested.inner.word", "a", pa.string())),
        ("`nested`.`inner` . word = 'a'", eq("nested.inner.word", "a", pa.string())),
        ("`a.b` = 1", Compare(Op.EQ, col("a.b"), pa.scalar(1, pa.int32()))),
        ("in = 1", eq("in", 1, pa.int32())),
        ("in IN (1)", In(col("in"), (pa.scalar(1, pa.int32()),))),
        ("date = DATE '1970-01-02'", Compare(Op.EQ, col("date"), pa.scalar(1, pa.int32()).cast(pa.date32()))),
        # searches
        ("word INDEXQUERY 'a b'", Search(SearchKind.INDEXQUERY, col("word"), "a b")),
        ("word indexquery 'it''s'", Search(SearchKind.INDEXQUERY, col("word"), "it's")),
        ('word indexquery "it\'s"', Search(SearchKind.INDEXQUERY, col("word"), "it's")),
        ("word NOT IndexQuery 'a'", Not(Search(SearchKind.INDEXQUERY, col("word"), "a"))),
        ("NOT word TEXTSEARCH 'a'", Not(Search(SearchKind.TEXTSEARCH, col("word"), "a"))),
        (
            "nested.inner.word FIELDMATCH 'a'",
            Search(SearchKind.FIELDMATCH, col("nested", "inner", "word"), "a"),
        ),
        ("textsearch TEXTSEARCH 'a'", Search(SearchKind.TEXTSEARCH, col("TextSearch"), "a")),
        ("fieldmatch fieldmatch 'a'", Search(SearchKind.FIELDMATCH, col("fieldmatch"), "a")),
        ("fieldmatch = 'a'", eq("fieldmatch", "a", pa.string())),
        ("* INDEXQUERY 'a'", Search(SearchKind.INDEXQUERY, None, "a")),
        ("* textsearch 'a'", Search(SearchKind.TEXTSEARCH, None, "a")),
        ("_IndexAll indexquery 'a'", Search(SearchKind.INDEXQUERY, None, "a")),
        ("IndexQueryAll('a')", Search(SearchKind.INDEXQUERY, None, "a")),
        ("indexquery(word, 'a')", Search(SearchKind.INDEXQUERY, col("word"), "a")),
        ("NOT textsearch(word, 'a')", Not(Search(SearchKind.TEXTSEARCH, col("word"), "a"))),
        ("labels INDEXQUERY 'labels.k:v'", Search(SearchKind.INDEXQUERY, col("labels"), "labels.k:v")),
        ("word = 'x INDEXQUERY y'", eq("word", "x INDEXQUERY y", pa.string())),
        ("flag -- INDEXQUERY 'a'\n", FLAG),
        ("/* a /* b */ c */ flag", FLAG),
        (
            "whole = 1 OR word INDEXQUERY 'a OR b'",
            Or((WHOLE_1, Search(SearchKind.INDEXQUERY, col("word"), "a OR b"))),
        ),
    ],
)
def test_a_condition_becomes(text: str, wanted: Any) -> None:
    assert shape(parse_condition(text, TABLE)) == shape(wanted)


@pytest.mark.parametrize(
    ("literal", "wanted"),
    [
        ("'a''b'", "a'b"),
        ('"a""b\'"', "a\"b'"),
        ("'a' 'b' \"c\"", "abc"),
        (r"'\n\t\\\'\"\q'", "\n\t\\'\"q"),
        (r"'\0\b\Z\r'", "\0\b\x1a\r"),
        (r"'\%\_'", "\\%\\_"),
        (r"'\u0041\U0001F600\101\377\12'", "A😀A37712"),
        (r"'\uD83D\uDE00'", "😀"),
        (r"r'a\nb'", "a\\nb"),
        (r'R"a\"', "a\\"),
        ("$$it's $1$$", "it's $1"),
        ("$q$a$$b$q$", "a$$b"),
        ("'a\nb -- c'", "a\nb -- c"),
        ("CAST(15 AS STRING)", "15"),
        ("CAST(1.50 AS STRING)", "1.50"),
        ("CAST(TRUE AS STRING)", "true"),
    ],
)
def test_a_string_is_read_as_spark_reads_it(literal: str, wanted: str) -> None:
    assert parse_condition(f"word = {literal}", TABLE) == eq("word", wanted, pa.string())


@pytest.mark.parametrize(
    ("column", "literal", "wanted"),
    [
        ("big", "5L", 5),
        ("big", "-5", -5),
        ("big", "- 5", -5),
        ("big", "+5", 5),
        ("big", "-(-5)", 5),
        ("big", "-9223372036854775808", -(2**63)),
        ("big", "-9223372036854775808L", -(2**63)),
        ("big", f"-{'0' * 200}5L", -5),
        ("big", "5.0", 5),
        ("big", "5e0", 5),
        ("big", "'5'", 5),
        ("big", "' -5 '", -5),
        ("big", "CAST('5' AS INT)", 5),
        ("big", "'5'::int", 5),
        ("big", "CAST(5.9 AS INT)", 5),
        ("big", "CAST(-5.9D AS BIGINT)", -5),
        ("big", "int(5)", 5),
        ("tiny", "-128Y", -128),
        ("tiny", "5S", 5),
        ("real", "1.5", 1.5),
        ("real", ".5", 0.5),
        ("real", "5.", 5.0),
        ("real", "1e3", 1000.0),
        ("real", "1.5D", 1.5),
        ("real", "1.5F", 1.5),
        ("real", "0.1BD", 0.1),
        ("real", "'1e3'", 1000.0),
        ("real", "9007199254740993", 9007199254740992.0),
        ("real", "double('Infinity')", math.inf),
        ("real", "double('-inf')", -math.inf),
        ("real", "-double('inf')", -math.inf),
        ("price", "1.5", Decimal("1.50")),
        ("price", "1", Decimal("1.00")),
        ("price", "1.10D", Decimal("1.10")),
        ("price", "'1.10'", Decimal("1.10")),
        ("price", "CAST('1.105' AS DECIMAL(10,2))", Decimal("1.11")),
        ("price", "decimal('1.5')", Decimal("2.00")),
        ("price", "1e-1BD", Decimal("0.10")),
        ("huge", "9007199254740993.0000000001", Decimal("9007199254740993.0000000001")),
        (
            "huge",
            "CAST('9999999999999999999999999999.9999999999' AS DECIMAL(38,10))",
            Decimal("9" * 28 + "." + "9" * 10),
        ),
        ("flag", "'yes'", True),
        ("flag", "'F'", False),
        ("flag", "CAST(0 AS BOOLEAN)", False),
        ("bytes", "X'0aFF'", b"\x0a\xff"),
        ("bytes", "x'a'", b"\x0a"),
        ("bytes", "'é'", "é".encode()),
    ],
)
def test_a_literal_takes_the_type_of_its_column(column: str, literal: str, wanted: Any) -> None:
    type_ = TABLE.field(column).type
    assert parse_condition(f"{column} = {literal}", TABLE) == eq(column, wanted, type_)


DAY = 86_400_000_000
NEW_YEAR = 19723  # 2024-01-01


@pytest.mark.parametrize(
    ("column", "literal", "zone", "wanted"),
    [
        ("day", "'2024-01-01'", "UTC", NEW_YEAR),
        ("day", "DATE '2024-1-1'", "UTC", NEW_YEAR),
        ("day", "DATE '2024'", "UTC", NEW_YEAR),
        ("day", "'2024-01-01T12:00'", "UTC", NEW_YEAR),
        ("day", "TIMESTAMP '2024-01-01 00:00:00'", "UTC", NEW_YEAR),
        ("day", "TIMESTAMP_NTZ '2024-01-01'", "Asia/Tokyo", NEW_YEAR),
        ("day", "DATE '0001-01-01'", "UTC", -719162),
        ("day", "DATE '-0044-03-15'", "UTC", -735525),
        ("day", "DATE '+12345-06-07'", "UTC", 3789548),
        ("moment", "'2024-01-01'", "UTC", NEW_YEAR * DAY),
        ("moment", "DATE '2024-01-01'", "Asia/Tokyo", NEW_YEAR * DAY - DAY * 9 // 24),
        ("moment", "TIMESTAMP '2024-01-01 00:00:00'", "+09:00", NEW_YEAR * DAY - DAY * 9 // 24),
        ("moment", "TIMESTAMP_NTZ '2024-01-01 00:00:00'", "Asia/Tokyo", NEW_YEAR * DAY - DAY * 9 // 24),
        ("moment", "TIMESTAMP '2024-01-01T00:00:00.1234567Z'", "Asia/Tokyo", NEW_YEAR * DAY + 123456),
        ("moment", "'2024-01-01 02:00:00+02:00'", "Asia/Tokyo", NEW_YEAR * DAY),
        ("moment", "'2024-01-01 01:00 Europe/Berlin'", "UTC", NEW_YEAR * DAY),
        # 02:30 does not exist on this day, and exists twice on that one
        ("moment", "'2024-03-31 02:30:00'", "Europe/Berlin", 19813 * DAY + DAY * 90 // 1440),
        ("moment", "'2024-10-27 02:30:00'", "Europe/Berlin", 20023 * DAY + DAY * 30 // 1440),
        ("moment", "TIMESTAMP '+294247-01-10 04:00:54.775807Z'", "UTC", 2**63 - 1),
        ("wall", "'2024-01-01'", "Asia/Tokyo", NEW_YEAR * DAY),
        ("wall", "TIMESTAMP_NTZ '2024-01-01 00:00:00+05:00'", "Asia/Tokyo", NEW_YEAR * DAY),
        ("wall", "DATE '2024-01-01'", "Asia/Tokyo", NEW_YEAR * DAY),
        ("wall", "TIMESTAMP '2024-01-01 00:00:00'", "UTC", NEW_YEAR * DAY),
        ("wall", "CAST('2024-01-01' AS TIMESTAMP_NTZ)", "UTC", NEW_YEAR * DAY),
    ],
)
def test_a_time_is_read_in_the_time_zone(column: str, literal: str, zone: str, wanted: int) -> None:
    found = parse_condition(f"{column} = {literal}", TABLE, time_zone=zone)
    assert isinstance(found, Compare)
    assert found.value.type == TABLE.field(column).type
    assert found.value.value == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tiny = 300", never("tiny")),
        ("tiny < 300", true_unless_null("tiny")),
        ("tiny > 300", never("tiny")),
        ("tiny >= -300", true_unless_null("tiny")),
        ("tiny <=> 300", Always(False)),
        # Spark's analyzer decides these without looking at nulls.
        ("big < 9223372036854775808", Always(True)),
        ("tiny >= 9223372036854775807.5", Always(False)),
        ("big > -9223372036854775809", Always(True)),
        ("big = 9223372036854775808", never("big")),
        ("big <= 9223372036854775807", cmp(Op.LE, "big", 2**63 - 1, pa.int64())),
        ("whole = 1.5", never("whole")),
        ("whole < 1.5", cmp(Op.LT, "whole", 2, pa.int32())),
        ("whole <= 1.5", cmp(Op.LE, "whole", 1, pa.int32())),
        ("whole > 1.5", cmp(Op.GT, "whole", 1, pa.int32())),
        ("whole >= -1.5", cmp(Op.GE, "whole", -1, pa.int32())),
        ("whole < double('NaN')", true_unless_null("whole")),
        ("whole = double('NaN')", never("whole")),
        ("whole > double('-inf')", true_unless_null("whole")),
        # As doubles, three neighbours of 2**53 + 1 look alike to Spark.
        (
            "big = 9007199254740992D",
            And((cmp(Op.GE, "big", 2**53, pa.int64()), cmp(Op.LE, "big", 2**53 + 1, pa.int64()))),
        ),
        ("big > 9007199254740992D", cmp(Op.GT, "big", 2**53 + 1, pa.int64())),
        # The decimal halfway between two doubles is rounded to the even one, the next decimal to the other.
        ("huge > 1180591620717411303424D", cmp(Op.GT, "huge", Decimal(2**70 + 2**17), pa.decimal128(38, 10))),
        (
            "huge >= 1180591620717411565568D",
            cmp(Op.GE, "huge", Decimal(f"{2**70 + 2**17}.0000000001"), pa.decimal128(38, 10)),
        ),
        ("price = 1.005", never("price")),
        ("price < 1.005", cmp(Op.LT, "price", Decimal("1.01"), pa.decimal128(10, 2))),
        ("price > 1e30", cmp(Op.GT, "price", Decimal("99999999.99"), pa.decimal128(10, 2))),
        ("price < 100000000", true_unless_null("price")),
        # 0.1 as a float is a little more than 0.1 as a double.
        ("single = 0.1", never("single")),
        ("single < 0.1", cmp(Op.LT, "single", 0.1, pa.float32())),
        ("single > 0.1", cmp(Op.GE, "single", 0.1, pa.float32())),
        ("single > 1e300", cmp(Op.GE, "single", math.inf, pa.float32())),
        ("day = TIMESTAMP '2024-01-01 12:00:00'", never("day")),
        (
            "day < TIMESTAMP '1970-01-02 12:00:00'",
            Compare(Op.LT, col("day"), pa.scalar(2, pa.int32()).cast(pa.date32())),
        ),
    ],
)
def test_a_literal_beyond_the_type_leaves_a_condition_that_is_right(text: str, wanted: Any) -> None:
    assert shape(parse_condition(text, TABLE)) == shape(wanted)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "the condition is empty"),
        ("  -- nothing", 12, "the condition is empty"),
        ("whole =", 7, "a column or a value is missing here"),
        ("whole = 1 AND", 13, "a column or a value is missing here"),
        ("AND whole = 1", 0, "missing before AND"),
        ("(whole = 1", 0, "this '(' is never closed"),
        ("whole = 1)", 9, "there is no '(' for this ')'"),
        ("word = 'a", 7, "this string is never closed"),
        ("word = r'a", 7, "this string is never closed"),
        ("word = $$a", 7, "this string is never closed"),
        ("`word = 1", 0, "this quoted name is never closed"),
        ("flag /* x", 5, "this comment is never closed"),
        ("wrod = 'a'", 0, "there is no column wrod; did you mean word? the columns are tiny, whole"),
        (
            "nested.whoel = 1",
            0,
            "there is no field whoel in nested; did you mean whole? the fields are whole, inner",
        ),
        ("word.x = 1", 0, "word is STRING and has no fields"),
        ("twice.x = 1", 0, "ambiguous"),
        ("labels.k = 'v'", 0, "search them: labels INDEXQUERY 'labels.key:value'"),
        ("tags['a'] = 'v'", 4, "the position of an array's element is a whole number"),
        ("tags[NULL] = 'v'", 4, "brackets take a number, or the key of a map"),
        ("tags[0 = 'v'", 4, "']' is missing"),
        ("tags[0", 4, "this '[' is never closed"),
        ("tags[0]", 0, "is STRING and not a condition"),
        ("word[0] = 'v'", 4, "word is STRING, neither an array nor a map"),
        ("'a'[0] = 'v'", 3, "takes a column with an array or a map"),
        ("labels['k'].x = 'v'", 12, "has no field x"),
        ("size(word) = 1", 5, "size takes an array or a map"),
        ("size(tags)", 5, "the value is INT and not a condition"),
        ("array_contains(labels, 'k')", 15, "array_contains takes an array"),
        ("array_contains(tags, NULL)", 15, "a value that is not NULL"),
        ("array_contains(tags, tags)", 15, "a value that is not NULL"),
        ("tags[0] = tags[1]", 0, "a comparison is of a column with a value"),
        ("tags" + "[tags" * 101, 4 + 5 * 100, "nested more than 100 deep"),
        ("word INDEXQURY 'a'", 5, "INDEXQURY is not an operator; did you mean INDEXQUERY?"),
        ("word LKE 'a'", 5, "did you mean LIKE?"),
        ("word startswith 'a'", 5, "startswith(column, 'text')"),
        ("whole 5", 6, "an operator is missing before '5'"),
        ("word 'a'", 5, "an operator is missing before"),
        ("word INDEXQUERY whole", 16, "takes its query in quotes"),
        ("'a' INDEXQUERY 'a'", 0, "takes a column"),
        ("(flag AND flag) INDEXQUERY 'a'", 1, "takes a column"),
        ("* = 1", 4, "a comparison is of a column with a value"),
        ("_indexall", 0, "all fields can only be searched"),
        ("whole", 0, "whole is INT and not a condition"),
        ("whole AND flag", 0, "whole is INT and not a condition"),
        ("'a'", 0, "not a condition"),
        ("whole = big", 0, "not of the columns whole and big"),
        ("whole = whole + 1", 14, "arithmetic"),
        ("-whole = 1", 0, "arithmetic"),
        ("word = 'a' || 'b'", 11, "concatenation"),
        ("lower(word) = 'a'", 0, "the function lower is not supported"),
        ("start_with(word, 'a')", 0, "did you mean startswith?"),
        ("startswith(word)", 10, "takes 2 arguments, not 1"),
        ("startswith(whole, '1')", 11, "whole is INT; startswith takes a STRING column"),
        ("contains(word, whole)", 15, "contains takes a text in quotes"),
        ("isnan(whole)", 6, "isnan takes a FLOAT or DOUBLE column"),
        ("CASE WHEN flag THEN flag END", 0, "CASE is not supported"),
        ("whole IN (SELECT 1)", 10, "subqueries"),
        ("(SELECT 1) = whole", 1, "subqueries"),
        ("whole IN ()", 10, "a column or a value is expected here"),
        ("whole IN 1", 9, "'(' is missing after IN"),
        ("whole IN (1, 2", 14, "ends too early"),
        ("whole BETWEEN 1 OR 2", 16, "AND is missing"),
        ("whole IS 5", 9, "after IS, NULL"),
        ("word RLIKE 'a'", 5, "RLIKE is not supported"),
        ("word LIKE whole", 10, "takes a text in quotes"),
        ("whole LIKE '1'", 11, "whole is INT; LIKE takes a STRING column"),
        ("word LIKE 'a\\\\'", 10, "ends with its escape character"),
        ("word LIKE 'a' ESCAPE 'bc'", 21, "one character"),
        (
            "word = 1",
            7,
            "word is STRING and cannot be compared with a value of type INT; write the value in quotes",
        ),
        ("whole = 'x'", 8, "whole is INT, but 'x' is not a valid BIGINT"),
        ("whole = '5.0'", 8, "not a valid BIGINT"),
        ("flag = 1", 7, "flag is BOOLEAN and cannot be compared"),
        ("flag = 'maybe'", 7, "not a valid BOOLEAN"),
        ("day = '2024-13-01'", 6, "'2024-13-01' is not a valid DATE"),
        ("day = '2023-02-29'", 6, "not a valid DATE"),
        ("day = 'today'", 6, "not a valid DATE"),
        ("moment = '12:30'", 9, "not a valid TIMESTAMP"),
        ("moment = '2024-01-01 25:00:00'", 9, "not a valid TIMESTAMP"),
        ("moment = '2024-01-01 00:00:00 Mars/Olympus'", 9, "not a valid TIMESTAMP"),
        ("DATE 'x' = day", 5, "'x' is not a valid DATE"),
        ("nested = 1", 9, "name a field of it"),
        ("tags = 'a'", 7, "INDEXQUERY"),
        ("whole = 300Y", 8, "300 is beyond the range of TINYINT"),
        ("real = 1e400", 7, "beyond the range of DOUBLE"),
        ("price = " + "9" * 39, 8, "at most 38 digits"),
        ("bytes = X'0g'", 9, "hexadecimal"),
        ("whole = CAST(whole AS INT)", 8, "only values are cast"),
        ("whole = CAST(5 AS ITN)", 18, "did you mean INT?"),
        ("whole = CAST('x' AS INT)", 8, "'x' is not a valid INT"),
        ("tiny = CAST(300 AS TINYINT)", 7, "beyond the range of TINYINT"),
        ("price = CAST(5 AS DECIMAL(39,0))", 18, "1 to 38 digits"),
        ("whole = ?", 8, "parameters"),
        ("word COLLATE utf8_lcase = 'a'", 5, "COLLATE is not supported"),
        ("flag;", 4, "an operator is missing before ';'"),
        ("(" * 10_001 + "flag" + ")" * 10_001, 10_000, "more than 10,000 parentheses"),
    ],
)
def test_a_condition_that_cannot_be_answered_is_refused_at_its_position(
    text: str, position: int, problem: str
) -> None:
    with pytest.raises(PredicateError, match=re.escape(problem)) as caught:
        parse_condition(text, TABLE)
    assert caught.value.position == position
    shown, caret = str(caught.value).split("\n")[1:]
    if position < len(text):
        assert shown[caret.index("^")] == text[position]


def test_times_that_depend_on_a_changing_clock_are_refused() -> None:
    with pytest.raises(PredicateError, match=r"day is DATE and would need the time zone Asia/Tokyo"):
        parse_condition("day < TIMESTAMP '2024-01-01 00:00:00'", TABLE, time_zone="Asia/Tokyo")
    with pytest.raises(PredicateError, match="unknown time zone 'Mars'"):
        parse_condition("moment < '2024-01-01'", TABLE, time_zone="Mars")
    with pytest.raises(PredicateError, match="outside the years 1 to 9999"):
        parse_condition("moment < '+12024-01-01'", TABLE, time_zone="Asia/Tokyo")


def test_a_malformed_query_is_refused_with_the_condition() -> None:
    with pytest.raises(QuerySyntaxError, match="a term is missing here"):
        parse_condition("flag AND word INDEXQUERY 'a AND'", TABLE)


def test_a_table_of_many_columns_lists_some() -> None:
    schema = pa.schema([(f"c{index}", pa.int32()) for index in range(100)])
    with pytest.raises(PredicateError, match="c19 and 80 more"):
        parse_condition("x = 1", schema)


def test_a_list_of_thousands_is_read() -> None:
    text = f"big IN ({', '.join(map(str, range(20_000)))})"
    found = parse_condition(text, TABLE)
    assert isinstance(found, In)
    assert len(found.values) == 20_000


def test_ten_thousand_alternatives_make_one_flat_node() -> None:
    equal = parse_condition(" OR ".join(["whole = 1"] * 10_000), TABLE)
    assert isinstance(equal, In)
    found = parse_condition(" OR ".join(["whole < 1"] * 10_000), TABLE)
    assert isinstance(found, Or)
    assert len(found.parts) == 10_000
