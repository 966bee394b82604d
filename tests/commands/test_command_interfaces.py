"""Every command is available in SQL, on the command line and in Python, with one result."""

import inspect
import json
import shlex
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest

import indextables as it
from indextables.cli import statements
from indextables.cli.main import main, program
from indextables.commands import COMMANDS, Command
from indextables.commands.execute import Implementation, implementation_of
from tests import command_uses

OPENINGS = [command.openings[0] for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.openings[0])
def test_a_declaration_is_all_that_sql_program_and_python_need(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flags are generated; a method of Python has a parameter for each clause, or this fails."""
    assert isinstance(implementation_of(command), Implementation)
    use = command_uses.USES[command.openings[0]]
    called: list[Command] = []
    monkeypatch.setattr(statements, "run_command", lambda found, *_: called.append(found) or 0)
    assert main(shlex.split(use.shell.format("logs"))) == 0
    assert called == [command]
    built = program().get_command(click.Context(program()), command.program.split()[0])
    assert built is not None
    flags = {o for p in built.params for o in p.opts}
    clauses = [clause for clause in command.clauses if not clause.refusal]
    assert {clause.option for clause in clauses} <= flags
    owner, _, name = command.python.rpartition(".")
    function = getattr(it.Table if owner else it, name)
    signature = inspect.signature(function)
    assert signature.return_annotation not in (inspect.Signature.empty, "Any")
    # A prewarm in the background is a method of its own.
    assert {clause.name for clause in clauses} - {"async"} <= signature.parameters.keys()
    assert function.__doc__


def test_each_interface_names_a_command_once() -> None:
    assert len({c.program for c in COMMANDS}) == len({c.python for c in COMMANDS}) == len(COMMANDS) == 27
    assert sorted(command_uses.USES) == sorted(OPENINGS)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return command_uses.worn(tmp_path_factory.mktemp("interfaces") / "t")


@pytest.mark.parametrize("opening", OPENINGS)
def test_all_interfaces_do_the_same(
    opening: str, template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use = command_uses.USES[opening]
    options = {"cache.disk.path": str(tmp_path / "cache")}
    by_sql = command_uses.prepared(template, opening, tmp_path / "by_sql", options)
    result = it.sql(use.sql.format(by_sql), options=options)
    assert result.schema == implementation_of(command_uses.command(opening)).result
    rows = command_uses.comparable(_plain(result), by_sql)
    assert rows, "nothing to compare"

    by_shell = command_uses.prepared(template, opening, tmp_path / "by_shell", options)
    told = ["-o", f"cache.disk.path={tmp_path / 'cache'}", "--json"]
    assert main([*shlex.split(use.shell.format(by_shell)), *told]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line.keys() == set(result.column_names) for line in lines)
    assert command_uses.comparable(lines, by_shell) == _through_json(rows)

    # A lost log cannot be opened, so that the table is opened before.
    by_python = command_uses.prepared(template, "CHECKPOINT INDEXTABLES", tmp_path / "by_python", options)
    table = it.open(by_python, options=options)
    use.before(by_python, options)
    given = use.gives(use.python(table, options))
    assert len(given) == len(rows)
    for known, row in zip(given, rows, strict=True):
        expected = {name: value for name, value in known.items() if name in row}
        assert {name: row[name] for name in expected} == expected
    assert not given[0] or any(name in rows[0] for name in given[0])


def _plain(result: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.to_pylist()
    return rows


def _through_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a program reads it: maps are objects, times are texts."""
    result: list[dict[str, Any]] = json.loads(
        json.dumps([{k: _map(v) for k, v in row.items()} for row in rows], default=str)
    )
    return result


def _map(value: Any) -> Any:
    is_map = isinstance(value, list) and all(isinstance(pair, tuple) for pair in value)
    return dict(value) if is_map else value
