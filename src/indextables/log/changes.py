"""What changed since a version: splits added, splits removed, and the version reached."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import VersionNotFoundError
from indextables.log.format.names import Listing
from indextables.log.load import Loader
from indextables.log.replay import Delta
from indextables.log.segment import earliest, segment_at, version_files
from indextables.log.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Changes:
    """The net change between two versions.

    `added` lists the splits that are live now and were not then, as a file list; `removed` lists the paths
    that were live then and are not now. Splits that came and went in between are in neither. A merge shows
    as added and removed splits whose `dataChange` is false.
    """

    since: int
    version: int
    added: pa.Table
    removed: pa.Array


def changes_since(loader: Loader, listing: Listing, since: int, now: Snapshot) -> Changes:
    """The changes after version `since` (-1: from nothing), up to a snapshot.

    While the version files are there, only they are read. Otherwise the two file lists are compared.
    """
    if not -1 <= since <= now.version:
        raise VersionNotFoundError(now.url, f"version {since}", earliest(listing), now.version)
    between = range(since + 1, now.version + 1)
    if all(version in listing.versions for version in between):
        delta = Delta().then(loader.versions(version_files(listing, between)))
        removed = [p for p in delta.removed if p not in delta.fresh and p not in delta.added]
        added = delta.files()
        added = added.filter(pc.is_in(added["path"], value_set=pa.array(list(delta.fresh), pa.string())))
        return Changes(since, now.version, added, pa.array(removed, pa.string()))
    then = loader.load(segment_at(loader.log, listing, since)).files()
    live = now.files()
    added = live.filter(pc.invert(pc.is_in(live["path"], value_set=_paths(then))))
    gone = then.filter(pc.invert(pc.is_in(then["path"], value_set=_paths(live))))
    return Changes(since, now.version, added, _paths(gone))


def _paths(listed: pa.Table) -> pa.Array:
    return listed["path"].combine_chunks()
