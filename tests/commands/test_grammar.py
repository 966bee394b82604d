"""Statements: what is a command, with which arguments, and what is wrong with it."""

import pytest

from indextables.commands import COMMANDS
from indextables.commands.execute import execute
from indextables.commands.grammar import Statement, parse_statement
from indextables.errors import CommandError


def understood(text: str) -> Statement:
    found = parse_statement(text)
    assert found is not None, text
    return found


@pytest.mark.parametrize("system", ["INDEXTABLES", "indextable", "Tantivy4Spark"])
@pytest.mark.parametrize(
    "text",
    [
        "PURGE {} '/t'",
        "checkpoint {} '/t';",
        "COMPACT {} '/t' ; ;",
        "TRUNCATE {} TIME TRAVEL '/t'",
        "DROP {} PARTITIONS FROM '/t' WHERE a = 1",
        "RESTORE {} '/t' TO VERSION 3",
        "REPAIR {} TRANSACTION LOG '/t'",
        "DESCRIBE {} STATE '/t'",
        "DESC {} HISTORY '/t'",
        "DESCRIBE {} TRANSACTION LOG '/t'",
        "DESCRIBE {} COMPONENT SIZES '/t'",
        "DESCRIBE {} DATA SKIPPING STATS '/t'",
        "DESCRIBE {} DISK CACHE",
        "DESCRIBE {} STORAGE STATS",
        "DESCRIBE {} ENVIRONMENT",
        "DESCRIBE {} MERGE JOBS",
        "DESCRIBE {} PREWARM JOBS",
        "PREWARM {} CACHE '/t'",
        "WAIT FOR {} PREWARM JOBS",
        "FLUSH {} SEARCHER CACHE",
        "FLUSH {} DISK CACHE",
        "INVALIDATE {} TRANSACTION LOG CACHE",
    ],
)
def test_every_command_takes_every_name_of_the_system(text: str, system: str) -> None:
    understood(text.format(system))


def test_comments_quotes_and_line_breaks() -> None:
    found = understood(
        '/* small /* ones */ */ MERGE -- all\n SPLITS "s3://bucket/it\'s; here"\nTARGET SIZE 100M;'
    )
    assert found.target.path == "s3://bucket/it's; here"
    assert found.arguments == {"target_size": 100 << 20}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("events", ("events",)),
        ("db.events", ("db", "events")),
        ("cat.`my db`.events", ("cat", "my db", "events")),
    ],
)
def test_a_table_may_have_a_name(text: str, name: tuple[str, ...]) -> None:
    for statement in (
        f"MERGE SPLITS {text}",
        f"PURGE INDEXTABLE {text} DRY RUN",
        f"PREWARM INDEXTABLES CACHE {text}",
    ):
        assert understood(statement).target.name == name


def test_a_path_may_stand_in_backticks() -> None:
    assert understood("CHECKPOINT INDEXTABLES indextables.`/data/t`").target.path == "/data/t"


def test_clauses_come_in_any_order() -> None:
    one = understood(
        "MERGE SPLITS t WHERE day = 3 AND (kind = 'max dest splits') TARGET SIZE 2G MAX DEST SPLITS 4 MAX SOURCE SPLITS PER MERGE 50"
    )
    other = understood(
        "MERGE SPLITS t MAX SOURCE SPLITS PER MERGE 50 TARGET SIZE 2 G MAX DEST SPLITS 4 WHERE day = 3 AND (kind = 'max dest splits')"
    )
    assert (
        one.arguments["where"].text
        == other.arguments["where"].text
        == "day = 3 AND (kind = 'max dest splits')"
    )
    for name, value in {"target_size": 2 << 30, "max_new_splits": 4, "max_sources": 50}.items():
        assert one.arguments[name] == other.arguments[name] == value


def test_purge_takes_days_and_hours() -> None:
    found = understood("PURGE INDEXTABLE t TRANSACTION LOG RETENTION 12 HOURS DRY RUN OLDER THAN 7 DAYS")
    assert found.arguments == {"older_than": 168.0, "log_retention": 12.0, "dry_run": True}
    assert understood("PURGE INDEXTABLE t OLDER THAN 1 DAY").arguments == {"older_than": 24.0}


def test_prewarm_takes_lists() -> None:
    found = understood(
        "PREWARM INDEXTABLES CACHE t ASYNC MODE ON FIELDS (a, `b c`) WITH PERWORKER PARALLELISM OF 3 FOR SEGMENTS (TERM_DICT, 'POSTINGS') WHERE d = 1"
    )
    arguments = dict(found.arguments)
    assert arguments.pop("where").text == "d = 1"
    assert arguments == {
        "async": True,
        "fields": ("a", "b c"),
        "parallelism": 3,
        "segments": ("TERM_DICT", "POSTINGS"),
    }


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("TO VERSION 7", ("version", 7)),
        ("TO VERSION AS OF 7", ("version", 7)),
        ("TO TIMESTAMP AS OF '2024-05-01 12:00:00'", ("timestamp", 1_714_564_800_000)),
        ("TO TIMESTAMP '2024-05-01T12:00:00+02:00'", ("timestamp", 1_714_557_600_000)),
    ],
)
def test_restore_takes_a_version_or_a_time(text: str, to: tuple[str, int]) -> None:
    assert understood(f"RESTORE INDEXTABLES t {text}").arguments == dict([to])


def test_optional_tables() -> None:
    assert understood("WAIT FOR INDEXTABLES PREWARM JOBS JOB 'a' TIMEOUT 5").target.path is None
    found = understood("WAIT FOR INDEXTABLES PREWARM JOBS '/t' TIMEOUT 5 JOB 'a'")
    assert (found.target.path, found.arguments) == ("/t", {"job": "a", "timeout": 5})
    assert understood("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR db.t").target.name == ("db", "t")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT indextables FROM t",
        "SELECT * FROM indextables",
        "DESCRIBE indextables",
        "DESCRIBE indextables.events",
        "DROP TABLE indextables",
        "MERGE INTO splits USING x ON a = b WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE t",
        "CREATE TABLE t (a INT) USING indextables",
        "",
    ],
)
def test_statements_of_others_are_left_to_them(text: str) -> None:
    assert parse_statement(text) is None


@pytest.mark.parametrize(
    ("text", "says", "position"),
    [
        ("DESCRIBE INDEXTABLES HISTROY '/t'", "did you mean DESCRIBE INDEXTABLES HISTORY", 21),
        ("PURG INDEXTABLE '/t'", "did you mean PURGE INDEXTABLE", 0),
        ("FLUSH TANTIVY4SPARK DSK CACHE", "did you mean FLUSH TANTIVY4SPARK DISK CACHE", 20),
        ("WAIT FOR INDEXTABLES PREWRM JOBS", "did you mean WAIT FOR INDEXTABLES PREWARM JOBS", None),
        ("MERGE SPLITS", "a table is missing", 12),
        ("MERGE SPLITS /data/t", "a path must be in quotes", 13),
        ("MERGE SPLITS s3://b/t", "a path must be in quotes", 13),
        ("MERGE SPLITS t TARGET SIZE big", "'big' is not a size such as 100M", 27),
        ("MERGE SPLITS t TARGET SIZE 10", "at least 1M is expected", 27),
        ("MERGE SPLITS t MAX DEST SPLITS 0", "at least 1 is expected", 31),
        ("MERGE SPLITS t MAX SOURCE SPLITS PER MERGE 1", "at least 2 is expected", 43),
        ("MERGE SPLITS t MAX DEST SPLITS -1", "a whole number is expected", 31),
        ("MERGE SPLITS t TARGET SZE 1G", "did you mean TARGET SIZE", 15),
        ("MERGE SPLITS t TARGET SIZE 1G TARGET SIZE 2G", "given twice", 30),
        ("MERGE SPLITS t PRECOMMIT", "PRECOMMIT had no effect", None),
        ("MERGE SPLITS t WHERE", "the condition after WHERE is missing", 20),
        ("PURGE INDEXTABLE t OLDER THAN 7", "ends too early", 31),
        ("PURGE INDEXTABLE t OLDER THAN 7 WEEKS", "DAYS or HOURS is expected", 32),
        ("PURGE INDEXTABLE t OLDER THAN seven DAYS", "a whole number is expected", 30),
        ("PURGE INDEXTABLE t DRY RUN; PURGE INDEXTABLE u", "only one command is allowed", 28),
        ("DROP INDEXTABLES PARTITIONS FROM t", "WHERE is missing", 34),
        ("RESTORE INDEXTABLES t", "TO VERSION or TO TIMESTAMP is missing", 21),
        ("RESTORE INDEXTABLES t TO VERSION 1 TO TIMESTAMP '2024-01-01'", "contradicts another clause", 35),
        ("RESTORE INDEXTABLES t TO TIMESTAMP 'noon'", "not a date and time", 35),
        ("REPAIR INDEXFILES TRANSACTION LOG t", "a text in quotes is expected", 34),
        ("PREWARM INDEXTABLES CACHE t ON FIELDS message", "'[(]' is missing", 38),
        ("PREWARM INDEXTABLES CACHE t FOR SEGMENTS (a b)", "',' or '[)]' is missing", 44),
        ("WAIT FOR INDEXTABLES PREWARM JOBS TIMEOUT 0", "at least 1 is expected", 42),
        ("CHECKPOINT INDEXTABLES '/t", "this string is never closed", 23),
        ("CHECKPOINT INDEXTABLES db.", "missing after '.'", 26),
    ],
)
def test_an_error_shows_its_place_and_the_way_out(text: str, says: str, position: int | None) -> None:
    with pytest.raises(CommandError, match=says) as caught:
        parse_statement(text)
    if position is not None:
        assert caught.value.position == position
        assert f"at character {position + 1}" in str(caught.value)


def test_a_name_needs_a_catalog() -> None:
    with pytest.raises(CommandError, match=r"'db\.t' cannot be resolved without a catalog"):
        execute("CHECKPOINT INDEXTABLES db.t")
    with pytest.raises(CommandError, match="not a command of indextables"):
        execute("SELECT 1")


def test_syntax_and_help_are_there_for_all() -> None:
    assert len(COMMANDS) == 27
    for command in COMMANDS:
        assert command.help.endswith(".")
        assert command.syntax
