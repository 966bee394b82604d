"""Whether a commit whose outcome was unknown is in the table."""

from dataclasses import dataclass

from indextables.log.format.actions import CommitInfo
from indextables.log.format.names import Listing
from indextables.log.load import Loader
from indextables.log.segment import bases, version_files

# Version files are read so many at a time: their actions are objects.
_SLICE = 256


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What became of a commit.

    `committed` is true if the commit is in the table, and `version` says where. It is false if the commit is
    proven to be absent for good: another commit stands at its version. It is None while the version that it
    was to become does not exist: the request may still arrive. Any other commit settles that.
    """

    committed: bool | None
    version: int | None = None


def commit_outcome(loader: Loader, listing: Listing, token: str, version: int | None) -> CommitOutcome:
    """Look for a token in the lineages of states and in version files."""
    occupied = False
    newest = -1
    for base in bases(listing):
        newest = max(newest, base.version)
        for steps, found in enumerate(reversed(loader.lineage_of(base))):
            if found == token:
                return CommitOutcome(committed=True, version=base.version - steps)
            occupied = occupied or (found is not None and base.version - steps == version)
    if occupied:
        return CommitOutcome(committed=False)
    # Behind the newest base only the version in question: what else is there is in no lineage any more.
    numbers = sorted(v for v in listing.versions if version is None or v > newest or v == version)
    for start in range(0, len(numbers), _SLICE):
        files = [f for v in numbers[start : start + _SLICE] for f in version_files(listing, range(v, v + 1))]
        for number, actions in loader.versions(files):
            if any(isinstance(a, CommitInfo) and a.token == token for a in actions):
                return CommitOutcome(committed=True, version=number)
    taken = version is not None and version > newest and version in listing.versions
    return CommitOutcome(committed=False if taken else None)
