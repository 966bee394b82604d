"""The program as somebody at a terminal meets it: colours, bars, help, completion, work in the background."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import indextables as it
from indextables.cli.main import main
from indextables.commands import COMMANDS
from tests.upkeep_tables import appended

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


def test_a_terminal_shows_matches_and_fits(logs: Path) -> None:
    shown = on_a_terminal("search", str(logs), "timeout AND level:ERROR")
    assert "\x1b[1;31mtimeout\x1b[0m while reading from <db>" in shown
    it.write(logs, [{"id": 4, "level": "ERROR", "message": "x" * 500}])
    assert all(
        len(line) <= 60
        for line in on_a_terminal("scan", str(logs), "--columns", "id,message").splitlines()
        if "\x1b" not in line
    )


def test_long_work_draws_a_bar_and_clears_it(tmp_path: Path) -> None:
    for _ in range(2):
        appended(tmp_path / "t", 3)
    shown = on_a_terminal("merge", str(tmp_path / "t"))
    assert "merge [##########....................] 1/3" in shown
    assert "merge [##############################] 3/3" in shown
    assert "\x1b[K" in shown.partition("merged_files")[0].rpartition("3/3")[2], "the bar is cleared"
    assert "/3" not in on_a_terminal("prewarm", str(tmp_path / "t"), "--quiet")
    (tmp_path / "in.csv").write_text("id,day,message\n7,7,hello\n")
    assert "rows read: 1" in on_a_terminal("write", str(tmp_path / "t"), str(tmp_path / "in.csv"))


def test_wide_results_are_shown_in_few_columns(tmp_path: Path) -> None:
    for _ in range(2):
        appended(tmp_path / "t", 2)
    merged = on_a_terminal("merge", str(tmp_path / "t")).splitlines()
    assert any(re.search(r"merged_files *\x1b\[0m +4$", line) for line in merged)
    history = on_a_terminal("history", str(tmp_path / "t"), columns=110).splitlines()
    assert re.search(r"version +time \(UTC\) +operation +added", history[0])
    assert re.search(r"^ +5 +20\d\d-.*MERGE", history[2])
    jobs = on_a_terminal("jobs", columns=110)
    assert re.search(r"job +table +status +done", jobs)
    assert "2/2" in jobs
    assert "table_path" not in jobs


PROGRAMS = [
    "search",
    "scan",
    "count",
    "describe",
    "history",
    "write",
    "merge",
    "purge",
    "checkpoint",
    "truncate",
    "drop",
    "restore",
    "repair",
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


def test_help_knows_every_command_and_teaches(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert re.findall(r"^    ([a-z]+) +\S", told, re.MULTILINE) == PROGRAMS
    assert {command.in_shell.split()[0] for command in COMMANDS} <= set(PROGRAMS)
    assert "exit codes: 0 done; 1 failed" in told
    assert "examples:" in told
    for name in PROGRAMS:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert f"usage: indextables {name}" in capsys.readouterr().out


def completed(script: Path, folder: Path, *words: str) -> set[str]:
    """What bash offers after these words, the last of which is being typed."""
    line = f"""
source {script}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_indextables
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", line], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_choices_and_files(tmp_path: Path, capsys) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "events.parquet").touch()

    def offered(*words: str) -> set[str]:
        return completed(script, tmp_path, "indextables", *words)

    assert offered("") == set(PROGRAMS)
    assert offered("pre") == {"prewarm"}
    assert offered("purge", "logs", "--d") == {"--dry-run"}
    assert {"--fields", "--async", "--segments", "--parallelism"} <= offered("prewarm", "logs", "-")
    assert offered("describe", "logs", "s") == {"state", "splits", "skipping"}
    assert offered("cache", "fl") == {"flush"}
    assert offered("write", "--mode", "") == {"append", "overwrite", "error", "ignore"}
    assert offered("write", "ev") == {"events.parquet"}
    assert offered("report", "logs", "--output", "ev") == {"events.parquet"}


def test_bash_uses_the_script_when_tab_is_pressed(tmp_path: Path, capsys) -> None:
    """A real bash on a terminal, and a real key."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    terminal, inside = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    try:
        os.write(terminal, f"source {script}; echo rea''dy\n".encode())
        _seen(terminal, b"ready\r\n")
        os.write(terminal, b"indextables trunc\t")
        _seen(terminal, b"indextables truncate ")
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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(shell: str, tmp_path: Path, capsys) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"\b{name}\b", text) for name in PROGRAMS)
    assert "target-size" in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script was not read by it")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)
    if shell == "fish":
        asked = f"source {tmp_path / 'script'}; complete -C 'indextables write --mode o'"
        offered = subprocess.run(
            [shell, "-c", asked], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert offered.split()[0] == "overwrite"


def test_a_prewarm_goes_on_after_the_program_has_ended(tmp_path: Path) -> None:
    appended(tmp_path / "t", 3)
    own = ["-o", f"cache.disk.path={tmp_path / 'cache'}", "--json"]

    def program(*arguments: str) -> list[dict]:
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


def test_a_prewarm_that_cannot_begin_says_so(tmp_path: Path, capsys) -> None:
    appended(tmp_path / "t", 1)
    assert main(["prewarm", str(tmp_path / "t"), "--async", "--fields", "mesage"]) == 1
    assert "did you mean message?" in capsys.readouterr().err
    assert main(["prewarm", str(tmp_path / "t"), "--async", "--where", "id = 1"]) == 1
    assert "id is not decided by a partition" in capsys.readouterr().err
    assert main(["wait", "--job", "nobody"]) == 1
    assert "no prewarm job 'nobody'" in capsys.readouterr().err
