"""The commands of SQL, declared once: Spark and the command line understand the same statements.

A command is planned; small ones are then done, others have work that runs wherever there are hands, and
are finished with what it gave.
"""

from indextables.commands import describe, upkeep
from indextables.commands.command import Command, Place, Work
from indextables.commands.grammar import Statement, read

__all__ = ["COMMANDS", "Command", "Place", "Statement", "Work", "understand"]

COMMANDS: tuple[Command, ...] = (*describe.COMMANDS, *upkeep.COMMANDS)


def understand(text: str) -> Statement | None:
    """The command that a statement is; None if it is not one of ours.

    Raises:
        CommandError: It begins like one of ours and goes on otherwise.
    """
    return read(text, COMMANDS)
