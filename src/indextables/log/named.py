"""Which splits the log names at all: what a purge must not touch."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.actions import Action, Add
from indextables.log.format.json_checkpoint import read_checkpoint
from indextables.log.format.manifest import read_manifest
from indextables.log.format.names import Listing
from indextables.log.format.state_manifest import decode_state, resolve_manifest_path
from indextables.log.load import Loader
from indextables.log.retention import Expired
from indextables.log.segment import Base, stamp_of, version_files

# Version files are read so many at a time: their actions are objects.
_SLICE = 256


def named_splits(loader: Loader, listing: Listing, gone: Expired) -> pa.Array:
    """The paths of all splits that are live at some version that can be read once `gone` is deleted.

    A version is a state or checkpoint and the version files after it, so these are the splits that are live
    at one of the former and those that one of the latter adds. A file that cannot be read is an error: what
    it names is not known.
    """
    parts = [*_by_states(loader, listing, gone), *_by_checkpoints(loader, listing, gone)]
    left = sorted(set(listing.versions) - set(gone.versions))
    for start in range(0, len(left), _SLICE):
        wanted = [f for v in left[start : start + _SLICE] for f in version_files(listing, range(v, v + 1))]
        parts += [_added(actions) for _, actions in loader.versions(wanted)]
    if not parts:
        return pa.array([], pa.string())
    return pc.unique(pa.chunked_array(parts, pa.string()))


def _by_states(loader: Loader, listing: Listing, gone: Expired) -> Iterable[pa.Array]:
    """The entries of all manifests, less those that every state that refers to them has taken out."""
    infos = [(v, info) for v, info in listing.states.items() if v not in gone.states]
    if listing.misfiled is not None and listing.misfiled.path not in gone.leading:
        infos.append((0, listing.misfiled))
    hidden: dict[str, set[str]] = {}
    entries: dict[str, int] = {}
    for version, info in infos:
        if info is listing.misfiled:
            state = decode_state(loader.get(info.path), f"{loader.log.url}/{info.path}")
        else:
            state = loader.state(Base(version, info.path, is_state=True, stamp=stamp_of(info)))
        tombstones = set(state.tombstones)
        for manifest in state.manifests:
            path = resolve_manifest_path(manifest.path, info.path.rsplit("/", 1)[0])
            hidden[path] = hidden[path] & tombstones if path in hidden else tombstones
            entries[path] = manifest.num_entries
    for path, count in entries.items():
        paths = read_manifest(loader.log, path, entries=count, columns=["path"])["path"].combine_chunks()
        if hidden[path]:
            taken = pa.array(list(hidden[path]), pa.string())
            paths = paths.filter(pc.invert(pc.is_in(paths, value_set=taken)))
        yield paths


def _by_checkpoints(loader: Loader, listing: Listing, gone: Expired) -> Iterable[pa.Array]:
    for version in sorted(set(listing.checkpoints) - set(gone.checkpoints)):
        yield _added(read_checkpoint(loader.log, version))


def _added(actions: Iterable[Action]) -> pa.Array:
    return pa.array([action.path for action in actions if isinstance(action, Add)], pa.string())
