"""The pages on commands and maintenance show what the commands return."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables as it
from indextables.cli.main import FAILED, INTERRUPTED
from indextables.cli.queries import NO_MATCHES
from indextables.commands import COMMANDS
from indextables.commands.declarations import TableArgument
from indextables.commands.execute import implementation_of
from tests.maintenance_tables import TEXT

ROOT = Path(__file__).parents[2]
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
PROGRAM_PAGE = ROOT / "docs" / "guide" / "command-line.md"
MAINTENANCE_PAGE = ROOT / "docs" / "operations" / "maintenance.md"


def statements(page: Path) -> list[str]:
    blocks = re.findall(r"^```sql\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text.strip() for block in blocks for text in block.split(";\n") if text.strip()]


@pytest.mark.parametrize("page", [COMMANDS_PAGE, MAINTENANCE_PAGE], ids=lambda p: p.stem)
def test_examples_of_sql_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for day in range(1, 13):
        it.write("logs", [{"day": day, "message": f"day {day}"}], partition_by=["day"], options=TEXT)
    Path("events").mkdir()
    pq.write_table(pa.table({"id": [1], "message": ["disk full"]}), "events/part-1.parquet")
    found = statements(page)
    assert len(found) >= 2
    for text in found:
        it.sql(text, options={"cache.disk.path": str(tmp_path / "cache")})


def test_examples_of_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", MAINTENANCE_PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, MAINTENANCE_PAGE.name, "exec"), names)


def test_examples_of_the_shell_run(tmp_path: Path) -> None:
    """All of them in one shell, as somebody would type them."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PROGRAM_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "errors.csv").read_text().count("\n") == 3
    assert (tmp_path / "report.html").exists()
    assert "COMPLETED" in done.stdout


def test_exit_codes_are_told_on_the_page_and_in_help() -> None:
    page = PROGRAM_PAGE.read_text()
    for code, meaning in (
        (0, "done"),
        (1, "failed"),
        (2, "wrong usage"),
        (3, "a search or `tail` found nothing"),
    ):
        assert f"| {code} | {meaning}" in page
    assert (FAILED, NO_MATCHES, INTERRUPTED) == (1, 3, 130)


def test_the_page_has_every_command_as_it_is_written() -> None:
    page = COMMANDS_PAGE.read_text()
    for command in COMMANDS:
        assert f"\n{command.syntax}\n" in page, command.syntax


def test_the_page_names_every_column() -> None:
    page = COMMANDS_PAGE.read_text()
    for command in COMMANDS:
        if command.openings[0].endswith("TRANSACTION LOG") and len(implementation_of(command).result) > 40:
            continue  # the first of 47 are named
        for field in implementation_of(command).result:
            assert f"`{field.name}`" in page, (command.openings[0], field.name)


def test_the_page_names_every_interface() -> None:
    page = COMMANDS_PAGE.read_text()
    for command in COMMANDS:
        called = command.python if "." in command.python else f"indextables.{command.python}"
        sql = " / ".join(f"`{opening}`" for opening in command.openings)
        program, _, choice = command.program.partition(" ")
        if choice:
            program += f" PATH {choice}" if command.table is TableArgument.REQUIRED else f" {choice}"
        assert f"| {sql} | `indextables {program}` | `{called}` |" in page
