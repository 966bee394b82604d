"""The program, from a shell: what it does, prints and returns."""

import csv
import gzip
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.cli import output
from indextables.cli.main import main
from indextables.cli.output import ProgressBar
from indextables.cli.parameters import OutputFormat
from indextables.log.transaction_log import TransactionLog
from indextables.maintain import on_write
from indextables.options import Options
from tests.maintenance_tables import appended, ids, orphan

LINES = [
    {"id": 1, "level": "ERROR", "message": "timeout while reading from <db>"},
    {"id": 2, "level": "INFO", "message": "all fine"},
    {"id": 3, "level": "ERROR", "message": "connection refused, then a timeout"},
]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    it.write(tmp_path / "logs", LINES, options={"indexing.typemap.message": "text"})
    return tmp_path / "logs"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the program prints when it succeeds."""
    assert main([str(a) for a in arguments]) == 0
    result: str = capsys.readouterr().out
    return result


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json").splitlines()]


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv", "parquet"])
def test_files_of_every_kind_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    table, path = pa.Table.from_pylist(LINES), tmp_path / f"in.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table.column_names, delimiter="\t" if form == "tsv" else ",")
            writer.writeheader()
            writer.writerows(LINES)
    told = rows(capsys, "write", tmp_path / "t", path, path, "--text", "message", "--partition-by", "level")
    assert (told[0]["rows"], told[0]["version"], told[0]["splits"]) == (6, 1, 2)
    found = it.open(tmp_path / "t")
    assert sorted(found.scan(["id"])["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    assert (found.partition_columns, found.count(where="message INDEXQUERY 'timeout'")) == (("level",), 4)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_standard_input_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(LINES), sink)
    elif form == "csv":
        sink.write(b"id,level\n1,ERROR\n2,INFO\n3,ERROR\n")
    else:
        sink.write(b"".join(json.dumps(line).encode() + b"\n" for line in LINES))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sink.getvalue())))
    assert rows(capsys, "write", tmp_path / "t", "--format", form)[0]["rows"] == 3
    assert it.open(tmp_path / "t").count() == 3


def test_a_date_in_json_is_a_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {"n": 1, "day": None, "at": "2026-05-02T10:00:00", "some": "2026-05-01"},
        {"day": "2026-05-01", "at": "2026-05-01T10:00:00", "some": "later", "n": 2},
        {"day": "2026-05-03", "at": None, "some": None, "n": 3},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "in.jsonl").write_text(text)
    run(capsys, "write", tmp_path / "t", tmp_path / "in.jsonl", "--partition-by", "day")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    run(capsys, "write", tmp_path / "t")
    table = it.open(tmp_path / "t")
    assert table.schema.names == ["n", "day", "at", "some"]
    assert table.schema.field("day").type == pa.date32()
    assert pa.types.is_timestamp(table.schema.field("at").type)
    assert table.schema.field("some").type == pa.string()
    assert table.count(where="day = DATE '2026-05-03'") == 2
    assert (tmp_path / "t" / "day=2026-05-01").is_dir()
    (tmp_path / "bad.jsonl").write_text('{"day": "2026-05-01"}\n' * 300 + '{"day": "noon"}\n')
    assert main(["write", str(tmp_path / "u"), str(tmp_path / "bad.jsonl")]) == 1
    assert "has dates or times first in the column day, and other strings later" in capsys.readouterr().err


def test_an_existing_table_may_be_ignored(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 9, "level": "INFO", "message": "x"}\n')
    told = rows(capsys, "write", logs, tmp_path / "in.jsonl", "--mode", "ignore")[0]
    assert (told["version"], told["rows"], told["operation"]) == (1, 0, "nothing: the table exists")
    assert rows(capsys, "write", tmp_path / "new", tmp_path / "in.jsonl", "--mode", "ignore")[0]["rows"] == 1


def test_a_write_says_what_it_wrote_whatever_happens_after_its_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    after_write = on_write.after_write

    def another_write(log: TransactionLog, options: Options) -> None:
        after_write(log, options)
        with monkeypatch.context() as patched:
            patched.setattr(on_write, "after_write", after_write)
            it.write(tmp_path / "t", {"id": [3, 4, 5]})

    def unreachable(*_: object, **__: object) -> None:
        raise it.IndexTablesError("503 slow down")

    monkeypatch.setattr(on_write, "after_write", another_write)
    monkeypatch.setattr(it.Table, "history", unreachable)
    told = rows(capsys, "write", tmp_path / "t", tmp_path / "in.jsonl")[0]
    assert (told["version"], told["operation"], told["rows"], told["splits"]) == (1, "WRITE", 2, 1)
    told = rows(capsys, "write", tmp_path / "t", tmp_path / "in.jsonl", "--mode", "overwrite")[0]
    assert (told["version"], told["operation"], told["rows"], told["splits"]) == (3, "OVERWRITE", 2, 1)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    told = rows(capsys, "write", tmp_path / "t", tmp_path / "empty.parquet")[0]
    assert (told["version"], told["operation"], told["rows"]) == (4, "nothing: there are no rows", 0)


def test_search_scan_and_count_agree(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [r["id"] for r in rows(capsys, "search", logs, "timeout AND level:ERROR", "--limit", 0)] == [1, 3]
    assert rows(capsys, "search", logs, "fine", "--columns", "id", "--scores")[0].keys() == {"id", "_score"}
    assert [r["id"] for r in rows(capsys, "scan", logs, "--where", "level = 'ERROR'", "--columns", "id")] == [
        1,
        3,
    ]
    assert run(capsys, "count", logs, "--where", "message INDEXQUERY 'timeout'") == "2\n"
    assert rows(capsys, "count", logs) == [{"count": 3}]
    text = run(capsys, "scan", logs, "--csv", "--columns", "id,message")
    assert list(csv.DictReader(io.StringIO(text)))[2] == {
        "id": "3",
        "message": "connection refused, then a timeout",
    }


def test_an_earlier_version_is_read(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    it.write(logs, LINES[:1])
    assert run(capsys, "count", logs) == "4\n"
    assert run(capsys, "count", logs, "--version-as-of", 1) == "3\n"


def test_exit_codes(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(logs), "nothingness"]) == 3
    assert main(["count", str(logs / "nowhere")]) == 1
    assert "no table at" in capsys.readouterr().err
    assert main(["scan", str(logs), "--where", "idd = 1"]) == 1
    assert "did you mean id?" in capsys.readouterr().err
    assert main(["count", str(logs), "-o", "chekpoint.interval=1"]) == 1
    for wrong in (
        ["serch", str(logs)],
        ["purge", str(logs), "--older-than", "2x"],
        ["merge", str(logs), "--target-size", "x"],
        ["count", str(logs), "-o", "x"],
        ["restore", str(logs)],
        ["restore", str(logs), "--to-timestamp", "noon"],
        ["restore", str(logs), "--to-version", "-1"],
        ["merge", str(logs), "--max-source-splits", "1"],
        ["prewarm", str(logs), "--parallelism", "0"],
        ["describe", str(logs), "weather"],
        ["restore", str(logs), "--to-version", "0", "--to-timestamp", "2026-05-01"],
        ["count", str(logs), "--json", "--csv"],
        ["search", str(logs), "x", "--limit", "-1"],
        [],
    ):
        assert main(wrong) == 2
    told = capsys.readouterr().err
    assert "No such command 'serch'. Did you mean 'search'?" in told
    assert "'weather' is not one of 'table', 'splits', 'state'" in told
    assert "Give one of --to-version and --to-timestamp." in told
    assert "Give --json or --csv, not both." in told


def test_what_a_command_does_not_take_is_refused(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        ["describe", str(logs), "state", "--where", "id = 1"],
        ["describe", str(logs), "components", "--all"],
        ["describe", str(logs), "splits", "--all"],
        ["describe", str(logs), "--where", "id = 1"],
        ["cache", "flush", str(logs)],
    ):
        assert main(wrong) == 1
        assert "takes n" in capsys.readouterr().err


def test_describe_tells_what_there_is(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = rows(capsys, "describe", logs)[0]
    assert (told["rows"], told["splits"], told["text_columns"]) == (3, 1, ["message"])
    assert "text_columns" in run(capsys, "describe", logs)
    assert rows(capsys, "describe", logs, "state")[0]["num_files"] == 1
    assert rows(capsys, "describe", logs, "splits")[0]["numRecords"] == 3
    assert len(rows(capsys, "describe", logs, "log")[0]) == 47
    assert "action_type" in run(capsys, "describe", logs, "log", "--all")
    assert any(r["component_key"] == "message.term" for r in rows(capsys, "describe", logs, "components"))
    assert rows(capsys, "describe", logs, "skipping")[0]["column_name"] == "id"
    assert run(capsys, "describe", logs, "--csv").splitlines()[0].startswith("table,version,rows")
    assert [r["operation"] for r in rows(capsys, "history", logs)] == ["WRITE", "CREATE TABLE"]
    assert "WRITE" in run(capsys, "history", logs, "--limit", 1)


def test_maintenance_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t"
    appended(table, 12)
    own = ("-o", f"cache.disk.path={tmp_path / 'cache'}")
    assert (
        rows(
            capsys, "prewarm", table, "--where", "day > 9", "--fields", "message", "--segments", "TERM", *own
        )[0]["splits_prewarmed"]
        == 2
    )
    assert rows(capsys, "cache", *own)[0]["splits_cached"] == 2
    assert rows(capsys, "drop", table, "--where", "day > 9")[0]["splits_removed"] == 2
    assert rows(capsys, "restore", table, "--to-version", 12)[0]["splits_restored"] == 2
    appended(table, 3)
    merged = rows(
        capsys,
        "merge",
        table,
        "--where",
        "day < 2",
        "--target-size",
        "10M",
        "--max-dest-splits",
        5,
        "--max-source-splits",
        9,
    )
    assert merged[0]["metrics"]["merged_files"] == 4
    assert rows(capsys, "checkpoint", table)[0]["status"] == "SUCCESS"
    orphan(table)
    assert (
        rows(capsys, "purge", table, "--older-than", "2d", "--dry-run")[0]["metrics"]["orphaned_files_found"]
        == 1
    )
    assert (
        rows(capsys, "purge", table, "--older-than", "48h", "--log-retention", "4w")[0]["metrics"][
            "orphaned_files_deleted"
        ]
        == 1
    )
    assert rows(capsys, "truncate", table, "--dry-run")[0]["status"] == "DRY_RUN"
    assert "status" in run(capsys, "truncate", table)
    assert len(ids(table)) == 45
    assert (
        rows(capsys, "repair", table / "_transaction_log", "--at", tmp_path / "new" / "_transaction_log")[0][
            "valid_splits"
        ]
        == 13
    )
    shutil.rmtree(table / "_transaction_log")
    assert rows(capsys, "repair", table)[0]["missing_splits"] == 0
    assert len(ids(table)) == 45
    assert rows(capsys, "sql", f"DESCRIBE INDEXTABLES HISTORY '{table}'")[0]["operation"] == "REPAIR"
    assert rows(capsys, "cache", "flush", *own)[0]["status"] == "success"


def test_progress_is_drawn_for_people_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProgressBar("merge") as bar:
        bar(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressBar("merge") as bar:
        bar(2, 2)
    assert "2/2" in capsys.readouterr().err
    with ProgressBar("merge", quiet=True) as bar:
        bar(2, 2)
    assert capsys.readouterr().err == ""


def test_output_that_cannot_be_written_is_one_line(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(logs), "--output", str(tmp_path / "no" / "where.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "indextables.cli", "scan", str(logs)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_a_reader_who_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    it.write(tmp_path / "t", {"id": list(range(50_000))})
    scan = subprocess.Popen(
        [sys.executable, "-m", "indextables.cli", "scan", str(tmp_path / "t"), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert scan.stdout is not None
    assert json.loads(scan.stdout.readline()) == {"id": 0}
    scan.stdout.close()
    assert (scan.wait(60), scan.stderr.read()) == (0, b"")
    scan.stderr.close()


CSV = "zip,phone,n,at\n01234,+4912345,1,2026-05-01T10:00:00Z\n99999,+4912346,,2026-05-02T10:00:00.5Z\n"


@pytest.mark.parametrize("packed", [False, True])
def test_numbers_with_leading_zeros_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, packed: bool
) -> None:
    source = tmp_path / ("in.csv.gz" if packed else "in.csv")
    source.write_bytes(gzip.compress(CSV.encode()) if packed else CSV.encode())
    run(capsys, "write", tmp_path / "t", source)
    table = it.open(tmp_path / "t")
    assert table.schema.field("n").type == pa.int64()
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.scan(where="zip = '01234'")["phone"].to_pylist() == ["+4912345"]
    # Later files have the types of the table, whatever their own first rows look like.
    (tmp_path / "later.csv").write_text("zip,phone,n,at\n12345,123456,007,2026-05-03T10:00:00Z\n")
    run(capsys, "write", tmp_path / "t", tmp_path / "later.csv")
    assert it.open(tmp_path / "t").scan(where="zip = '12345'")["n"].to_pylist() == [7]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_file_is_that_of_its_first_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delimiter: str
) -> None:
    (tmp_path / "in.csv").write_text(f'"a,;|\t,;|\t"{delimiter}b\n"x,;|\ty"{delimiter}2\n')
    assert rows(capsys, "write", tmp_path / "t", tmp_path / "in.csv")[0]["rows"] == 1
    found = it.open(tmp_path / "t").scan()
    assert found.column_names == ["a,;|\t,;|\t", "b"]
    assert [list(row.values()) for row in found.to_pylist()] == [["x,;|\ty", 2]]


def test_a_file_that_is_not_in_utf_8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_bytes(b"n,t\n1,caf\xe9\n")
    assert main(["write", str(tmp_path / "t"), str(tmp_path / "in.csv")]) == 1
    assert "the column t is not in UTF-8; convert the file first" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_times_with_a_zone_in_json_are_instants_unless_the_table_has_strings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"at": "2026-05-01T10:00:00+02:00", "local": "2026-05-01T10:00:00.25", "mixed": "2026-05-01T10:00Z"},
        {"at": "2026-05-01 09:00:00.5Z", "local": "2026-05-01 11:00:00", "mixed": "2026-05-01T10:00:00"},
    ]
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    run(capsys, "write", tmp_path / "t", tmp_path / "in.jsonl.gz")
    table = it.open(tmp_path / "t")
    assert [field.type for field in table.schema] == [
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.string(),
    ]
    assert table.count(where="at = TIMESTAMP '2026-05-01T08:00:00Z'") == 1
    it.write(tmp_path / "u", [{"at": "text", "local": "", "mixed": ""}])
    option = "indexing.typemap.at=string"
    for name, extra in (("u", ()), ("v", ("-o", option)), ("v", ("-o", option))):
        run(capsys, "write", tmp_path / name, tmp_path / "in.jsonl.gz", *extra)
        assert "2026-05-01 09:00:00.5Z" in it.open(tmp_path / name).scan()["at"].to_pylist()


def test_a_search_that_finds_nothing_says_which_columns_have_no_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    it.write(tmp_path / "t", [{"message": "a timeout", "other": "b timeout"}])
    it.write(
        tmp_path / "words",
        [{"message": "a timeout", "other": "b"}],
        options={"indexing.typemap.message": "text"},
    )
    for arguments, hint in (
        (["t", "timeout"], "whole values are compared in message, other, not words"),
        (["t", "timeout", "--field", "Other"], "whole values are compared in other, not words"),
        (["words", "nothing"], None),
        (["words", "nothing", "--field", "message"], None),
        (["words", "nothing", "--field", "other"], "whole values are compared in other, not words"),
    ):
        assert main(["search", str(tmp_path / arguments[0]), *arguments[1:]]) == 3
        told = capsys.readouterr().err
        assert (hint is None and not told) or (hint is not None and hint in told), arguments
        assert main(["search", str(tmp_path / arguments[0]), *arguments[1:], "--json"]) == 3
        assert capsys.readouterr().err == ""


def test_wrong_input_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.dat").write_text("x")
    (tmp_path / "a.parquet").write_text("x")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n")
    for files, says in (
        (["a.dat"], "give --format"),
        (["nothing.csv"], "there is no file"),
        (["a.parquet"], "cannot be read as parquet"),
        (["a.csv", "b.csv"], "has the columns a, c, but the first file has a, b"),
    ):
        assert main(["write", str(tmp_path / "t"), *(str(tmp_path / f) for f in files)]) == 1
        assert says in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.split"))


@pytest.mark.parametrize("standard_input", [False, True])
def test_values_of_csv_may_have_line_breaks_wherever_they_are(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    standard_input: bool,
) -> None:
    expected = [f"{n} first line {'x' * 40}\n{n + 7},second line" for n in range(40_000)]
    text = "id,text\n" + "".join(f'{n},"{value}"\n' for n, value in enumerate(expected))
    (tmp_path / "in.csv").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    source = ["--format", "csv"] if standard_input else [tmp_path / "in.csv"]
    assert rows(capsys, "write", tmp_path / "t", *source)[0]["rows"] == len(expected)
    found = it.open(tmp_path / "t").scan()
    assert dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)) == dict(
        enumerate(expected)
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("late.jsonl", '{"a": 1, "pad": "%s"}\n' % ("y" * 40) * 60_000 + '{"a": 1, "pad": "x", "late": 5}\n'),
        ("late.csv", "a,b\n" + "1,2\n" * 600_000 + "1,2,3\n"),
        ("type.csv", "a,b\n" + "1,2\n" * 600_000 + "1,text\n"),
    ],
)
def test_an_error_within_a_file_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / f"first_{name}").write_text(text[: 1 << 16].rpartition("\n")[0] + "\n")
    for files in ([name], [f"first_{name}", name]):
        assert main(["write", str(tmp_path / "t"), *(str(tmp_path / file) for file in files)]) == 1
        assert f"{name} cannot be read to its end" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.split"))


def test_values_are_shown_safely() -> None:
    assert output.text_of("a\x1b[31mb\nc") == "a [31mb c"
    out = io.StringIO()
    output.write_tables([pa.table({"n": [1.5, None], "t": ["世界", "a\tb"]})], OutputFormat.TABLE, out)
    assert out.getvalue() == "n\tt\n1.5\t世界\nnull\ta b\n"
    out = io.StringIO()
    output.write_tables([pa.table({"n": [float("nan"), float("inf")]})], OutputFormat.JSON, out)
    assert [json.loads(line)["n"] for line in out.getvalue().splitlines()] == ["nan", "inf"]


def test_changes_shows_what_versions_inserted_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t"
    it.write(path, [{"id": 1}, {"id": 2}])
    it.write(path, [{"id": 3}], mode="overwrite")
    found = rows(capsys, "changes", path, "--since", 1)
    assert sorted((r["_change_type"], r["id"], r["_commit_version"]) for r in found) == [
        *(("delete", 1, 2), ("delete", 2, 2), ("insert", 3, 2))
    ]
    assert rows(
        capsys, "changes", path, "--since", "-1", "--until", 1, "--where", "id = 2", "--columns", "id"
    ) == [{"id": 2}]
    assert len(rows(capsys, "changes", path, "--since", "1999-01-01")) == 5
    assert main(["changes", str(path), "--since", "7"]) == 1
    assert "changes cannot start after version 7" in capsys.readouterr().err
    assert main(["changes", str(path)]) == 2
    assert "--since" in capsys.readouterr().err


def test_tail_shows_new_rows_that_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    options = {"indexing.typemap.text": "text"}
    it.write(path, [{"id": 1, "text": "an error"}], options=options)
    it.write(path, [{"id": 2, "text": "all well"}, {"id": 3, "text": "error again"}])
    assert rows(capsys, "tail", path, "error", "--since", 1, "--timeout", 0) == [
        {"id": 3, "text": "error again"}
    ]
    assert run(capsys, "tail", path, "--since", "-1", "--timeout", 0, "--columns", "id").split() == [
        "id",
        "1",
        "2",
        "3",
    ]
    assert main(["tail", str(path), "error", "--timeout", "0"]) == 3, "nothing new"
    assert main(["tail", str(path), "er(ror", "--timeout", "0"]) == 1
    assert "indextables:" in capsys.readouterr().err
