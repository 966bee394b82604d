"""The program on a terminal: colours, progress bars, help, completion, background jobs."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.cli.main import main
from indextables.commands import COMMANDS
from tests.maintenance_tables import appended

LINES = [
    {"id": 1, "level": "ERROR", "message": "timeout while reading from <db>"},
    {"id": 2, "level": "INFO", "message": "all fine"},
    {"id": 3, "level": "ERROR", "message": "connection refused, then a timeout"},
]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    it.write(tmp_path / "logs", LINES, options={"indexing.typemap.message": "text"})
    return tmp_path / "logs"


def on_a_terminal(*arguments: str, columns: int = 60) -> str:
    """What the program prints when somebody looks."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    environment.pop("NO_COLOR", None)
    done = subprocess.Popen(
        [sys.executable, "-m", "indextables.cli", *arguments], stdout=writer, stderr=writer, env=environment
    )
    os.close(writer)
    out = b""
    try:
        while chunk := os.read(reader, 4096):
            out += chunk
    except OSError:
        pass
    os.close(reader)
    assert done.wait(60) == 0, out
    return out.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """Without codes of the terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_shows_matches_and_fits(logs: Path) -> None:
    shown = on_a_terminal("search", str(logs), "timeout AND level:ERROR")
    assert "\x1b[1;31mtimeout\x1b[0m while reading from <db>" in shown
    long = "needle " + "hay " * 200
    it.write(logs, [{"id": 4, "level": "ERROR", "message": long}])
    lines = plain(on_a_terminal("scan", str(logs), "--columns", "id,message")).splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("hay") for line in lines) == 200, "long values are wrapped, not cut"
    found = on_a_terminal("search", str(logs), "needle", "--columns", "message")
    assert "\x1b[1;31mneedle\x1b[0m" in found
    assert plain(found).count("hay") < 200, "of a very long value the matching fragment is shown"


def test_many_columns_are_shown_as_records(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{f"column_{n}": n for n in range(12)}])
    shown = plain(on_a_terminal("scan", str(tmp_path / "t"), columns=50))
    assert re.search(r"^column_11 +11$", shown, re.MULTILINE)


def test_long_work_draws_a_bar_and_clears_it(tmp_path: Path) -> None:
    for _ in range(2):
        appended(tmp_path / "t", 3)
    shown = on_a_terminal("merge", str(tmp_path / "t"))
    assert re.search(r"merge .*3/3", plain(shown))
    assert "\x1b[2K" in shown.partition("merged_files")[0].rpartition("3/3")[2], "the bar is cleared"
    assert "/3" not in on_a_terminal("prewarm", str(tmp_path / "t"), "--quiet")
    (tmp_path / "in.csv").write_text("id,day,message\n7,7,hello\n")
    written = plain(on_a_terminal("write", str(tmp_path / "t"), str(tmp_path / "in.csv")))
    assert re.search(r"rows .*1/\?", written)


def test_wide_results_are_shown_in_few_columns(tmp_path: Path) -> None:
    for _ in range(2):
        appended(tmp_path / "t", 2)
    merged = plain(on_a_terminal("merge", str(tmp_path / "t")))
    assert re.search(r"^merged_files +4 *$", merged, re.MULTILINE)
    history = plain(on_a_terminal("history", str(tmp_path / "t"), columns=110)).splitlines()
    assert re.search(r"version +time \(UTC\) +operation +added", history[0])
    assert re.search(r"^ *5 +20\d\d-.*MERGE", history[2])
    jobs = plain(on_a_terminal("jobs", columns=160))
    assert re.search(r"job +table +status +done", jobs)
    assert "2/2" in jobs
    assert "table_path" not in jobs


PROGRAMS = [
    "search",
    "scan",
    "count",
    "changes",
    "tail",
    "watch",
    "describe",
    "history",
    "write",
    "merge",
    "purge",
    "checkpoint",
    "truncate",
    "drop",
    "restore",
    "convert",
    "repair",
    "companion",
    "root",
    "prewarm",
    "wait",
    "jobs",
    "cache",
    "storage",
    "environment",
    "sql",
    "report",
    "completion",
]


def test_help_knows_every_command_and_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    listed = told.partition("Commands:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  ([a-z]+) +\S", listed, re.MULTILINE) == PROGRAMS
    assert {command.program.split()[0] for command in COMMANDS} <= set(PROGRAMS)
    assert "exit codes: 0 done; 1 failed" in told
    assert "examples:" in told
    for name in PROGRAMS:
        assert main([name, "--help"]) == 0
        assert f"Usage: indextables {name}" in capsys.readouterr().out


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the shell finds the program, and files to complete."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "indextables").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m indextables.cli "$@"\n')
    (folder / "indextables").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    (tmp_path / "events.parquet").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(shell: str, *words: str) -> list[str]:
    """What the program answers when a shell asks what may follow these words, the last one being typed."""
    line, typed = ["indextables", *words[:-1]], words[-1]
    position = typed if shell == "fish" else str(len(line))
    environment = {
        **os.environ,
        "_INDEXTABLES_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join([*line, typed]),
        "COMP_CWORD": position,
    }
    done = subprocess.run(
        ["indextables"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    lines = [line for line in done.stdout.splitlines() if line]
    if shell == "zsh":
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_flags_and_choices(shell: str) -> None:
    assert offered(shell, "") == PROGRAMS
    assert offered(shell, "pre") == ["prewarm"]
    assert offered(shell, "purge", "logs", "--d") == ["--dry-run"]
    assert {"--fields", "--async", "--segments", "--parallelism"} <= set(
        offered(shell, "prewarm", "logs", "--")
    )
    assert offered(shell, "describe", "logs", "s") == ["splits", "state", "skipping"]
    assert offered(shell, "cache", "fl") == ["flush"]
    assert offered(shell, "write", "--mode", "o") == ["overwrite"]
    assert offered(shell, "search", "logs", "x", "--columns", "m") == [], "columns are no files"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_shells_call_the_program(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert f"_INDEXTABLES_COMPLETE={shell}_complete" in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was not read by it")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)


def test_bash_completes_when_tab_is_pressed(on_path: Path) -> None:
    """A real bash on a terminal, and a real key: a command, then a file."""
    terminal, inside = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        cwd=on_path,
    )
    os.close(inside)
    try:
        os.write(terminal, b"source <(indextables completion bash); echo rea''dy\n")
        _seen(terminal, b"ready\r\n")
        os.write(terminal, b"indextables trunc\t")
        _seen(terminal, b"indextables truncate ")
        os.write(terminal, b"ev\t")
        _seen(terminal, b"events.parquet")
    finally:
        shell.kill()
        shell.wait(60)
        os.close(terminal)


def _seen(terminal: int, wanted: bytes) -> None:
    shown = b""
    until = time.monotonic() + 60
    while wanted not in shown:
        assert time.monotonic() < until, shown
        shown += os.read(terminal, 4096)


def test_a_prewarm_goes_on_after_the_program_has_ended(tmp_path: Path) -> None:
    appended(tmp_path / "t", 3)
    own = ["-o", f"cache.disk.path={tmp_path / 'cache'}", "--json"]

    def program(*arguments: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "indextables.cli", *arguments, *own],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    started = program("prewarm", str(tmp_path / "t"), "--async", "--where", "day <> 1")[0]
    assert (started["status"], started["async_mode"]) == ("started", True)
    ended = program("wait", str(tmp_path / "t"), "--job", started["job_id"], "--timeout", "60")[0]
    assert (ended["status"], ended["total_splits"], ended["splits_prewarmed"]) == ("COMPLETED", 2, 2)
    listed = {job["job_id"]: job for job in program("jobs", "prewarm")}
    assert listed[started["job_id"]]["progress_pct"] == 100.0
    assert program("cache")[0]["splits_cached"] == 2


def test_a_prewarm_in_the_background_runs_no_module_of_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(tmp_path / "t", 1)
    here = tmp_path / "here"
    (here / "indextables").mkdir(parents=True)
    ran = here / "ran"
    for name in ("json.py", "indextables/__init__.py", "msgspec.py"):
        (here / name).write_text(f"open({str(ran)!r}, 'w').close()\nraise ImportError\n")
    monkeypatch.chdir(here)
    own = ["-o", f"cache.disk.path={tmp_path / 'cache'}"]
    assert main(["prewarm", str(tmp_path / "t"), "--async", *own]) == 0
    assert "started" in capsys.readouterr().out
    assert not ran.exists()


def test_a_prewarm_that_cannot_begin_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    appended(tmp_path / "t", 1)
    assert main(["prewarm", str(tmp_path / "t"), "--async", "--fields", "mesage"]) == 1
    assert "did you mean message?" in capsys.readouterr().err
    assert main(["prewarm", str(tmp_path / "t"), "--async", "--where", "id = 1"]) == 1
    assert "id is not decided by a partition" in capsys.readouterr().err
    assert main(["wait", "--job", "nobody"]) == 1
    assert "no prewarm job 'nobody'" in capsys.readouterr().err
