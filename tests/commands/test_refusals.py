"""What commands refuse, they refuse through every interface, in the same words and without changing anything."""

import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import indextables as it
from indextables.cli.main import main
from tests.maintenance_tables import appended

Call = Callable[[it.Table], object]
OTHER = "id is not decided by a partition"
REFUSED: list[tuple[str, str, Call, str]] = [
    ("MERGE SPLITS '{}' WHERE id = 1", "merge {} --where id=1", lambda t: t.merge(where="id = 1"), OTHER),
    (
        "MERGE SPLITS '{}' WHERE dya = 1",
        "merge {} --where dya=1",
        lambda t: t.merge(where="dya = 1"),
        "did you mean day?",
    ),
    (
        "MERGE SPLITS '{}' TARGET SIZE 10",
        "merge {} --target-size 10",
        lambda t: t.merge(target_size=10),
        "1M",
    ),
    (
        "MERGE SPLITS '{}' MAX DEST SPLITS 0",
        "merge {} --max-dest-splits 0",
        lambda t: t.merge(max_new_splits=0),
        "1",
    ),
    (
        "MERGE SPLITS '{}' MAX SOURCE SPLITS PER MERGE 1",
        "merge {} --max-source-splits 1",
        lambda t: t.merge(max_sources=1),
        "2",
    ),
    (
        "PURGE INDEXTABLE '{}' OLDER THAN 23 HOURS",
        "purge {} --older-than 23h",
        lambda t: t.purge(older_than=timedelta(hours=23)),
        "below the minimum of 24",
    ),
    (
        "PURGE INDEXTABLE '{}' OLDER THAN -1 DAYS",
        "purge {} --older-than=-1d",
        lambda t: t.purge(older_than=timedelta(days=-1)),
        "",
    ),
    (
        "PURGE INDEXTABLE '{}' TRANSACTION LOG RETENTION -1 DAYS",
        "purge {} --log-retention=-1d",
        lambda t: t.purge(log_retention=timedelta(days=-1)),
        "",
    ),
    (
        "DROP INDEXTABLES PARTITIONS FROM '{}' WHERE id = 1",
        "drop {} --where id=1",
        lambda t: t.drop_partitions("id = 1"),
        OTHER,
    ),
    (
        "DROP INDEXTABLES PARTITIONS FROM '{}' WHERE day =",
        "drop {} --where day=",
        lambda t: t.drop_partitions("day ="),
        "a value is missing",
    ),
    (
        "DROP INDEXTABLES PARTITIONS FROM '{}-plain' WHERE id = 1",
        "drop {}-plain --where id=1",
        lambda t: it.open(f"{t.url}-plain").drop_partitions("id = 1"),
        "not partitioned",
    ),
    (
        "RESTORE INDEXTABLES '{}' TO VERSION 99",
        "restore {} --to-version 99",
        lambda t: t.restore(99),
        "versions 0 to 2",
    ),
    (
        "RESTORE INDEXTABLES '{}' TO TIMESTAMP '1999-01-01'",
        "restore {} --to-timestamp 1999-01-01",
        lambda t: t.restore(timestamp="1999-01-01"),
        "1999",
    ),
    (
        "RESTORE INDEXTABLES '{}' TO TIMESTAMP 'noon'",
        "restore {} --to-timestamp noon",
        lambda t: t.restore(timestamp="noon"),
        "noon",
    ),
    ("REPAIR INDEXFILES TRANSACTION LOG '{}'", "repair {}", lambda t: it.repair(t.url), "there is a log at"),
    (
        "REPAIR INDEXFILES TRANSACTION LOG '{}' AT LOCATION '{}-new/_transaction_log'",
        "repair {} --at {}-new/_transaction_log",
        lambda t: it.repair(t.url, at=f"{t.url}-new/_transaction_log"),
        "does not end in _transaction_log",
    ),
    (
        "REPAIR INDEXFILES TRANSACTION LOG '{}/_transaction_log' AT LOCATION '{}-new'",
        "repair {}/_transaction_log --at {}-new",
        lambda t: it.repair(f"{t.url}/_transaction_log", at=f"{t.url}-new"),
        "does not end in _transaction_log",
    ),
    (
        "REPAIR INDEXFILES TRANSACTION LOG '{}/_transaction_log' AT LOCATION '{}-plain/_transaction_log'",
        "repair {}/_transaction_log --at {}-plain/_transaction_log",
        lambda t: it.repair(f"{t.url}/_transaction_log", at=f"{t.url}-plain/_transaction_log"),
        "absent or empty",
    ),
    (
        "DESCRIBE INDEXTABLES COMPONENT SIZES '{}' WHERE id = 1",
        "describe {} components --where id=1",
        lambda t: t.components("id = 1"),
        OTHER,
    ),
    (
        "PREWARM INDEXTABLES CACHE '{}' FOR SEGMENTS (TERMS)",
        "prewarm {} --segments TERMS",
        lambda t: t.prewarm(segments=["TERMS"]),
        "did you mean TERM?",
    ),
    (
        "PREWARM INDEXTABLES CACHE '{}' ON FIELDS (mesage)",
        "prewarm {} --fields mesage",
        lambda t: t.prewarm(fields=["mesage"]),
        "did you mean message?",
    ),
    (
        "PREWARM INDEXTABLES CACHE '{}' ON FIELDS (day)",
        "prewarm {} --fields day",
        lambda t: t.start_prewarm(fields=["day"]),
        "has no index to warm",
    ),
    (
        "PREWARM INDEXTABLES CACHE '{}' WHERE id = 1",
        "prewarm {} --where id=1",
        lambda t: t.prewarm(where="id = 1"),
        OTHER,
    ),
    (
        "PREWARM INDEXTABLES CACHE '{}' WITH PERWORKER PARALLELISM OF 0",
        "prewarm {} --parallelism 0",
        lambda t: t.prewarm(parallelism=0),
        "0",
    ),
    (
        "WAIT FOR INDEXTABLES PREWARM JOBS '{}' JOB 'nobody'",
        "wait {} --job nobody",
        lambda t: t.wait_for_prewarm("nobody"),
        "no prewarm job 'nobody'",
    ),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    appended(folder / "t-plain", 1, partition_by=())
    appended(folder / "t", 2)
    return folder / "t"


@pytest.mark.parametrize(
    ("sql", "shell", "python", "says"), REFUSED, ids=[r[0].format("t", "t") for r in REFUSED]
)
def test_each_interface_refuses_it(
    table: Path, sql: str, shell: str, python: Call, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in table.parent.rglob("*") if "_tmp" not in str(path))
    for call in (lambda: it.sql(sql.format(table, table)), lambda: python(it.open(table))):
        with pytest.raises(it.IndexTablesError) as caught:
            call()
        assert says in str(caught.value)
    code: object
    try:
        code = main(shlex.split(shell.format(table, table)))
    except SystemExit as usage:
        code = usage.code
    told = capsys.readouterr()
    assert code in (1, 2)
    assert says in told.err
    assert told.out == ""
    assert sorted(path for path in table.parent.rglob("*") if "_tmp" not in str(path)) == before
