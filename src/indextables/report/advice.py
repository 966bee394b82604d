"""What to do next with a table, and why."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from indextables.report.facts import SMALL, Facts, counted, short

_MANY = 8
_OLD_STATE = 50


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do: what, why, and the command that does it."""

    what: str
    why: str
    command: str


def advice_for(facts: Facts) -> Iterator[Advice]:
    """What would do the table good; nothing if it is in good shape."""
    path = shlex.quote(facts.url.removeprefix("file://"))
    if facts.mergeable >= _MANY:
        yield Advice(
            "Merge small splits",
            f"{facts.mergeable:,} splits are smaller than {short(SMALL)} and could be merged: every search "
            "opens each of them.",
            f"indextables merge {path}",
        )
    if facts.state.version is None and facts.version >= _MANY:
        yield Advice(
            "Write a state of the log",
            f"There is no state: a reader replays {facts.version + 1} versions to open the table.",
            f"indextables checkpoint {path}",
        )
    elif facts.state.version is not None and facts.version - facts.state.version >= _OLD_STATE:
        behind = facts.version - facts.state.version
        yield Advice(
            "Write a state of the log",
            f"The newest state is {behind} versions old, which a reader replays.",
            f"indextables checkpoint {path}",
        )
    elif facts.state.needs_compaction:
        yield Advice(
            "Compact the state of the log",
            f"The state has {facts.state.num_tombstones} tombstones and {facts.state.num_manifests} "
            "manifests; a compacted one opens faster.",
            f"indextables checkpoint {path}",
        )
    orphans = facts.orphans
    if orphans.orphans_found or orphans.log_files_found:
        found = []
        if orphans.orphans_found:
            found.append(f"{counted(orphans.orphans_found, 'file')} ({short(orphans.bytes_found)})")
        if orphans.log_files_found:
            found.append(f"{counted(orphans.log_files_found, 'file')} of the log")
        yield Advice(
            "Purge what nobody needs",
            f"No version that is kept needs {' and '.join(found)}.",
            f"indextables purge {path}",
        )
    if facts.skipped:
        yield Advice(
            "Look at unreadable splits",
            f"{counted(facts.skipped, 'split')} could not be read by a merge and rest; the log says why.",
            f"indextables describe {path} log",
        )
