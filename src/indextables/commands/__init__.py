"""Commands for maintenance and diagnostics: one declaration for SQL, the command line and Python.

Short commands return their result from the plan step. Long-running ones return tasks that can run on
executors, and are finished with the results of the tasks.
"""

from indextables.commands.declarations import COMMANDS, Clause, Command, TableArgument, ValueKind

__all__ = ["COMMANDS", "Clause", "Command", "TableArgument", "ValueKind"]
