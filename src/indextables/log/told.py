"""The log as it stands in its files: each action, with the file that holds it."""

from collections.abc import Iterator
from dataclasses import dataclass

from indextables.log.format.actions import Action
from indextables.log.format.files import to_adds
from indextables.log.format.names import Listing, version_file
from indextables.log.load import Loader
from indextables.log.segment import Segment, segment_at, version_files

# Files are read and told so many at a time.
_SLICE = 256


@dataclass(frozen=True, slots=True)
class Told:
    """The actions of one file of the log; a state or checkpoint tells those that make up its version."""

    version: int
    path: str
    actions: list[Action]
    is_checkpoint: bool


def told(loader: Loader, listing: Listing, *, everything: bool) -> Iterator[Told]:
    """The newest base and the versions after it; or every version file that is there."""
    if everything:
        wanted = sorted(listing.versions)
    else:
        segment = segment_at(loader.log, listing, None)
        if segment.base is not None:
            start = Segment(segment.base.version, segment.base, (), segment.earlier_states)
            yield Told(segment.base.version, segment.base.path, _of_base(loader, start), is_checkpoint=True)
        wanted = [file.version for file in segment.versions]
    for start_at in range(0, len(wanted), _SLICE):
        numbers = wanted[start_at : start_at + _SLICE]
        files = [file for v in numbers for file in version_files(listing, range(v, v + 1))]
        for version, actions in loader.versions(files):
            yield Told(version, version_file(version), actions, is_checkpoint=False)


def _of_base(loader: Loader, segment: Segment) -> list[Action]:
    snapshot = loader.load(segment)
    return [snapshot.protocol, snapshot.metadata, *snapshot.skips.values(), *to_adds(snapshot.files())]
