"""Whatever is typed: an understood command, somebody else's statement, or an error of ours with its place."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.commands import COMMANDS, TableArgument
from indextables.commands.grammar import parse_statement
from indextables.errors import CommandError

CLAUSES = [
    (
        "WHERE day = 3 AND kind IN ('a', 'max dest splits')",
        "where",
        "day = 3 AND kind IN ('a', 'max dest splits')",
    ),
    ("TARGET SIZE 2G", "target_size", 2 << 30),
    ("MAX DEST SPLITS 4", "max_new_splits", 4),
    ("max source splits per merge 50", "max_sources", 50),
]
WORDS = sorted(
    {word for c in COMMANDS for o in (*c.openings, *(k.keywords for k in c.clauses)) for word in o.split()}
)
PIECES = st.sampled_from(
    [*WORDS, "'/t'", "t", "db.t", "1", "7", "(", ")", ",", ";", "--", "/*", "*/", "'", "`", "=", "\n"]
)


@given(st.permutations(CLAUSES), st.integers(0, len(CLAUSES)))
@settings(max_examples=60)
def test_the_order_of_clauses_means_nothing(order: Any, count: Any) -> None:
    chosen = order[:count]
    found = parse_statement(" ".join(["MERGE SPLITS '/t'", *(text for text, _, _ in chosen)]))
    assert found is not None
    told = {name: getattr(value, "text", value) for name, value in found.arguments.items()}
    assert told == {name: value for _, name, value in chosen}


@given(st.lists(PIECES, max_size=12).map(" ".join) | st.text(max_size=40))
@settings(max_examples=300)
def test_any_text_is_understood_left_alone_or_refused_with_a_place(text: str) -> None:
    position: int | None = 0
    try:
        parse_statement(text)
    except CommandError as error:
        position = error.position
    assert position is not None
    assert 0 <= position <= len(text)


@given(st.sampled_from(COMMANDS), st.data())
@settings(max_examples=100)
def test_a_command_is_understood_in_any_case(command: Any, data: Any) -> None:
    opening = data.draw(st.sampled_from(command.openings))
    rest = {"SET": " root 'a' = 'b'", "UNSET": " root 'a'"}.get(opening.split(maxsplit=1)[0], "")
    rest += f" {command.before_table}" if command.before_table == "AT" else ""
    rest += " '/t'" if command.table in (TableArgument.REQUIRED, TableArgument.PATH) else ""
    more = {"DROP": " where a = 1", "RESTORE": " to version 1", "BUILD": " at location '/i'"}
    rest += more.get(opening.split(maxsplit=1)[0], "")
    mixed = "".join(data.draw(st.sampled_from([char.lower(), char.upper()])) for char in opening)
    found = parse_statement(mixed + rest)
    assert found is not None
    assert found.command is command
