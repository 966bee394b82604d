"""The names of files in the log folder (PROTOCOL.md, "The log folder").

The path of a split is relative to the table's folder, or a whole URL of an object below that folder.
Other paths are refused: if a path cannot be normalised, a purge could take its file for an orphan
(PROTOCOL.md, "Paths").
"""

import re
from collections.abc import Iterable
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogError, StoreError
from indextables.records import dataclass
from indextables.store import ObjectInfo
from indextables.store.location import check, locate, relative_to

LOG_FOLDER = "_transaction_log"
POINTER = "_last_checkpoint"
MANIFEST_FOLDER = "manifests"
STATE_FILE = "_manifest.avro"
STATE_FILE_JSON = "_manifest.json"

# Twenty digits, of which the first two are 0, so that versions fit into 64 bits.
MAX_VERSION = 10**18 - 1
_VERSION = re.compile(r"(00[0-9]{18})\.json")
_CHECKPOINT = re.compile(r"(00[0-9]{18})\.checkpoint\.json")
_CHECKPOINT_PART = re.compile(r"(00[0-9]{18})\.checkpoint\.[^./]+\.[0-9]+\.json")
_STATE = re.compile(r"(state-v((?:00)?[0-9]{1,18}))/_manifest\.(avro|json)")
_FILTER_BUNDLE = re.compile(r"manifests/filters-[0-9a-f]{32}\.bin")
# Probe objects: a process writes one to read the store's time, or to test create-if-absent, and deletes it.
_PROBE = re.compile(r"(?:\.clock-|_probe_)[0-9a-f]{32}")
_STATE_MANIFEST = re.compile(r"(?:manifests|state-v(?:00)?[0-9]{1,18})/manifest-[^/]+\.avro")


def version_file(version: int) -> str:
    """The file of a version.

    >>> version_file(7)
    '00000000000000000007.json'
    """
    return f"{version:020d}.json"


def state_folder(version: int) -> str:
    """The folder of the state at a version.

    >>> state_folder(7)
    'state-v00000000000000000007'
    """
    return f"state-v{version:020d}"


def state_file(version: int) -> str:
    """The file whose creation makes a state visible."""
    return f"{state_folder(version)}/{STATE_FILE}"


def filter_bundle_path(token: str) -> str:
    """The path of a new filter bundle."""
    return f"{MANIFEST_FOLDER}/filters-{token}.bin"


def is_filter_bundle(path: str) -> bool:
    """Whether a path in the log folder is that of a filter bundle.

    >>> is_filter_bundle(filter_bundle_path("0f3b9a6e4d5c4b0f9a4b7b1f2f3c9d11"))
    True
    """
    return _FILTER_BUNDLE.fullmatch(path) is not None


@dataclass(slots=True)
class Listing:
    """The files of the log folder, by kind; other files are ignored."""

    versions: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoints: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoint_parts: list[tuple[int, ObjectInfo]] = field(default_factory=list)
    states: dict[int, ObjectInfo] = field(default_factory=dict)
    manifests: dict[str, ObjectInfo] = field(default_factory=dict)
    filter_bundles: dict[str, ObjectInfo] = field(default_factory=dict)
    pointer: ObjectInfo | None = None
    # Probe objects of running or killed processes, which may appear and disappear during any other operation.
    probes: list[ObjectInfo] = field(default_factory=list, compare=False)
    # A state in the folder of a version that it does not describe (see `segment.full_listing`).
    misfiled: ObjectInfo | None = None

    @classmethod
    def of(cls, objects: Iterable[ObjectInfo]) -> "Listing":
        """Sort objects of the log folder into their kinds."""
        listing = cls()
        for info in objects:
            listing._take(info)
        return listing

    def _take(self, info: ObjectInfo) -> None:
        if match := _VERSION.fullmatch(info.path):
            self.versions[int(match[1])] = info
        elif match := _STATE.fullmatch(info.path):
            # If a folder has both forms, the Avro file is used: releases wrote that one.
            if match[3] == "avro" or int(match[2]) not in self.states:
                self.states[int(match[2])] = info
        elif _STATE_MANIFEST.fullmatch(info.path):
            self.manifests[info.path] = info
        elif is_filter_bundle(info.path):
            self.filter_bundles[info.path] = info
        elif match := _CHECKPOINT.fullmatch(info.path):
            self.checkpoints[int(match[1])] = info
        elif match := _CHECKPOINT_PART.fullmatch(info.path):
            self.checkpoint_parts.append((int(match[1]), info))
        elif info.path == POINTER:
            self.pointer = info
        elif _PROBE.fullmatch(info.path):
            self.probes.append(info)

    @property
    def latest(self) -> int | None:
        """The highest version of any file."""
        return max((*self.versions, *self.states, *self.checkpoints), default=None)


# A scheme, or a slash at the start: then it is not relative to the table.
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"
# What `store.location.check` refuses, for a whole column at once; few paths are checked one by one.
_SUSPECT = r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]"
_LONGEST = 1024


def relative_paths(paths: pa.Array, table_url: str) -> pa.Array:
    """Paths of splits as a listing of the table's folder shows them, in their order.

    Raises:
        LogError: a path is malformed, or outside of the table's folder.
    """
    absolute = pc.match_substring_regex(paths, _ABSOLUTE)
    if pc.any(absolute).as_py():
        inside = [_below(path, table_url) for path in paths.filter(absolute).to_pylist()]
        paths = pc.replace_with_mask(paths, absolute, pa.array(inside, pa.string()))
    suspect = pc.or_(pc.match_substring_regex(paths, _SUSPECT), pc.greater(pc.binary_length(paths), _LONGEST))
    for path in paths.filter(suspect).to_pylist():
        _check_relative(path, path, table_url)
    return paths


def _below(path: str, table_url: str) -> str:
    """A whole URL or an absolute path of the local disk, relative to the table."""
    try:
        relative = relative_to(path, locate(table_url))
    except StoreError as error:
        raise _path_error(path, table_url, str(error)) from error
    return _check_relative(relative, path, table_url)


def _check_relative(relative: str, path: str, table_url: str) -> str:
    try:
        return check(relative)
    except StoreError as error:
        raise _path_error(path, table_url, str(error)) from error


def _path_error(path: str, table_url: str, problem: str) -> LogError:
    return LogError(
        f"the log of {table_url} names the split {path!r}: {problem}; so it is unknown which files the "
        "table needs, and nothing was deleted; open the table by the URL that its log uses, or REPAIR it"
    )
