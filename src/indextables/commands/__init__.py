"""The commands of SQL, declared once: Spark and the command line understand the same statements.

A command is planned; small ones are then done, others have work that runs wherever there are hands, and
are finished with what it gave.
"""

from indextables.commands.caches import COMMANDS as CACHES
from indextables.commands.command import Command, Place, Wanted, Work
from indextables.commands.describe import COMMANDS as DESCRIBE
from indextables.commands.grammar import Statement, Target, read
from indextables.commands.log_actions import COMMANDS as LOG_ACTIONS
from indextables.commands.rewrite import COMMANDS as REWRITE
from indextables.commands.upkeep import COMMANDS as UPKEEP
from indextables.commands.warming import COMMANDS as WARMING

__all__ = ["COMMANDS", "Command", "Place", "Statement", "Target", "Wanted", "Work", "understand"]

COMMANDS: tuple[Command, ...] = (*UPKEEP, *REWRITE, *DESCRIBE, *LOG_ACTIONS, *WARMING, *CACHES)


def understand(text: str) -> Statement | None:
    """The command that a statement is; None if it is not one of ours.

    Raises:
        CommandError: It begins like one of ours and goes on otherwise.
    """
    return read(text, COMMANDS)
