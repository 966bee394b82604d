"""Commands that change the log do on object stores what they do on a local disk, through each interface."""

import json
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.cli.main import main
from indextables.errors import IndexTablesError
from indextables.options import Options
from indextables.store import Store, open_store
from tests import command_uses
from tests.servers.fixtures import StoreUrl

KINDS = ("s3", "seaweed", "azure")
# Nothing on a store can be made older than it is, so that a purge is told not to wait.
NOW = {"purge.retentionCheckEnabled": "false"}
PURGE = replace(
    command_uses.USES["PURGE INDEXTABLE"],
    sql="PURGE INDEXTABLE '{}' OLDER THAN 0 HOURS TRANSACTION LOG RETENTION 100 HOURS",
    shell="purge {} --older-than 0h --log-retention 100h",
    python=lambda t, _: t.purge(older_than=timedelta(0), log_retention=timedelta(hours=100)),
)
USES = {
    **{
        opening: command_uses.USES[opening]
        for opening in (
            "MERGE SPLITS",
            "CHECKPOINT INDEXTABLES",
            "TRUNCATE INDEXTABLES TIME TRAVEL",
            "DROP INDEXTABLES PARTITIONS FROM",
            "RESTORE INDEXTABLES",
            "REPAIR INDEXFILES TRANSACTION LOG",
        )
    },
    "PURGE INDEXTABLE": PURGE,
}
IDS = sorted(n for _ in range(2) for n in range(12))
LEFT = {
    "DROP INDEXTABLES PARTITIONS FROM": [n for n in IDS if n < 6],
    "RESTORE INDEXTABLES": sorted(range(12)),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return command_uses.worn(tmp_path_factory.mktemp("stores") / "t")


def copied(template: Path, url: str, options: dict[str, str], *, lost: bool = False) -> Store:
    """The table on a store; its log may be lost."""
    store = open_store(url, Options.parse(options))
    for file in template.rglob("*"):
        path = str(file.relative_to(template))
        if file.is_file() and not (lost and path.startswith("_transaction_log")):
            store.put(path, file.read_bytes())
    return store


@pytest.mark.server
@pytest.mark.parametrize("opening", USES)
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_store_makes_no_difference(
    kind: str,
    opening: str,
    template: Path,
    make_store_url: StoreUrl,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use, lost = USES[opening], opening.startswith("REPAIR")
    copied(template, str(tmp_path / "local"), {}, lost=lost)
    local = it.sql(use.sql.format(tmp_path / "local"), options=NOW)
    expected = command_uses.comparable(local.to_pylist(), tmp_path / "local")
    for interface in ("sql", "shell", "python"):
        url, given = make_store_url(kind)
        options = {**given, **NOW}
        copied(template, url, options, lost=lost and interface != "python")
        if interface == "sql":
            found = command_uses.comparable(it.sql(use.sql.format(url), options=options).to_pylist(), url)
        elif interface == "shell":
            flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
            assert main([*shlex.split(use.shell.format(url)), *flags, "--json"]) == 0
            found = command_uses.comparable(
                [json.loads(line) for line in capsys.readouterr().out.splitlines()], url
            )
        else:
            found = by_python(use, opening, url, options, expected)
        assert found == expected, interface
        assert sorted(it.open(url, options=options).scan(["id"])["id"].to_pylist()) == LEFT.get(opening, IDS)


def by_python(
    use: command_uses.Use, opening: str, url: str, options: dict[str, str], expected: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What is expected, with what Python gives in its place."""
    table = it.open(url, options=options)
    if opening.startswith("REPAIR"):
        store = open_store(url, Options.parse(options))
        store.delete([info.path for info in store.list("_transaction_log")])
        result = it.repair(url, options=options)
    else:
        result = use.python(table, options)
    given = use.gives(result)[0]
    return [{**expected[0], **{k: v for k, v in given.items() if k not in command_uses.VOLATILE}}]


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_repaired_elsewhere(
    kind: str, template: Path, make_store_url: StoreUrl, capsys: pytest.CaptureFixture[str]
) -> None:
    url, options = make_store_url(kind)
    store = copied(template, url, options)
    gone = it.open(url, options=options).files()["path"][0].as_py()
    store.delete([gone])
    before = sorted((info.path, info.size) for info in store.list())
    there, _ = make_store_url(kind)
    statement = (
        f"REPAIR INDEXFILES TRANSACTION LOG '{url}/_transaction_log' AT LOCATION '{there}/_transaction_log'"
    )
    row = it.sql(statement, options=options).to_pylist()[0]
    assert (row["source_version"], row["total_splits"], row["valid_splits"], row["missing_splits"]) == (
        8,
        8,
        7,
        1,
    )
    assert (row["source_path"], row["target_path"]) == (
        f"{url}/_transaction_log",
        f"{there}/_transaction_log",
    )
    assert sorted((info.path, info.size) for info in store.list()) == before, "the source is not changed"
    assert gone not in it.open(there, options=options).files()["path"].to_pylist()
    with pytest.raises(IndexTablesError, match="give a folder that is absent or empty"):
        it.sql(statement, options=options)
    with pytest.raises(
        IndexTablesError, match="it can be read; to write a new one elsewhere, give AT LOCATION"
    ):
        it.repair(url, options=options)
    flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    other, _ = make_store_url(kind)
    repaired = ["repair", f"{url}/_transaction_log", "--at", f"{other}/_transaction_log", *flags, "--json"]
    assert main(repaired) == 0
    assert json.loads(capsys.readouterr().out)["valid_splits"] == 7


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_is_repaired_from_an_earlier_version(
    kind: str, template: Path, make_store_url: StoreUrl
) -> None:
    """Moved into place, the new log is the table's again."""
    url, options = make_store_url(kind)
    store = copied(template, url, options)
    store.put(f"_transaction_log/{8:020d}.json", b"{damaged")
    there, _ = make_store_url(kind)
    done = it.repair(f"{url}/_transaction_log", at=f"{there}/_transaction_log", options=options)
    assert (done.source_version, done.valid_splits) == (7, 7)
    store.delete([info.path for info in store.list("_transaction_log")])
    new = open_store(there, Options.parse(options))
    for info in new.list("_transaction_log"):
        store.put(info.path, new.get(info.path))
    assert it.open(url, options=options).count() == 21
