"""Whether a version that was just created counts, or stands behind a truncation.

A truncation forgets all versions before the newest one. If it forgets a version that others made while a
commit was about to create it, creating it succeeds once more, and no reader will ever look at it. A
truncation points at the state that it leaves before it deletes anything, so a pointer at this version or
beyond is the sign to look for.
"""

from indextables.errors import CommitUnknownError
from indextables.log.conflict import Draft
from indextables.log.format.names import version_file
from indextables.log.format.pointer import read_pointer
from indextables.log.load import Loader
from indextables.log.segment import bases, current_segment, full_listing


def is_overtaken(loader: Loader, version: int, draft: Draft, url: str) -> bool:
    """Whether a version of ours does not count; its file is gone then, and it can be committed anew.

    Raises CommitUnknownError if that cannot be told.
    """
    pointer = read_pointer(loader.log)
    if pointer is None or pointer.version < version:
        return False
    listing = full_listing(loader.log)
    own = listing.versions.get(version)
    states = [base for base in bases(listing) if base.version >= version]
    if own is not None and any(base.stamp[1] < own.modified_ms for base in states):
        # What was complete before our version began is made of other versions.
        loader.log.delete([version_file(version)])
        return True
    if not draft.adds:
        return False
    live = set(loader.load(current_segment(loader.log)).files()["path"].to_pylist())
    if all(add.path in live for add in draft.adds):
        return False
    raise CommitUnknownError(url, version, "versions were cleaned up and its splits removed at that moment")
