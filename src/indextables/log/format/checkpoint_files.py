"""JSON checkpoints, and the pointer `_last_checkpoint` to the newest state or checkpoint.

A JSON checkpoint has all actions that still apply, in one file or in parts (PROTOCOL.md, "JSON checkpoints").
Older tables have them in place of a state. They are compressed in the form that the original's older readers
need.

Readers start at the file that the pointer names (PROTOCOL.md, "The pointer"). It may be absent, outdated or
damaged: then a listing of the log folder finds the newest state, so it never causes a wrong answer.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from indextables.errors import CorruptLogError, ObjectMissingError
from indextables.limits import MAX_UNPACKED
from indextables.log.format import version_file
from indextables.log.format.actions import Action, Add
from indextables.log.format.names import POINTER, state_folder
from indextables.records import dataclass
from indextables.store import Store

# The maximum number of actions in a part.
ACTIONS_PER_PART = 100_000

_ID_BYTES = 6


class _Parts(Struct, rename="camel"):
    """The content of a checkpoint's file when the actions are in parts."""

    version: int
    checkpoint_id: str
    parts: list[str]
    created_time: int = 0
    format: str = "json"


def checkpoint_file(version: int) -> str:
    """The file of a checkpoint: the actions themselves, or the list of parts.

    >>> checkpoint_file(7)
    '00000000000000000007.checkpoint.json'
    """
    return f"{version:020d}.checkpoint.json"


@dataclass(frozen=True, slots=True)
class EncodedCheckpoint:
    """The files of a checkpoint by name, in the order in which they are to be written.

    `parts` and `checkpoint_id` are those of the pointer, for a checkpoint in parts.
    """

    files: Mapping[str, bytes]
    parts: int | None = None
    checkpoint_id: str | None = None


def encode_checkpoint(actions: Sequence[Action], *, version: int, now_ms: int) -> EncodedCheckpoint:
    """The checkpoint of a version.

    Args:
        actions: the actions that apply at the version; adds are written last.
        version: the version.
        now_ms: the time, in milliseconds.
    """
    others = [action for action in actions if not isinstance(action, Add)]
    ordered = [*others, *(action for action in actions if isinstance(action, Add))]
    starts = range(0, max(len(ordered), 1), ACTIONS_PER_PART)
    packed = [data for start in starts for data in _pack(ordered[start : start + ACTIONS_PER_PART])]
    if len(packed) == 1:
        return EncodedCheckpoint({checkpoint_file(version): packed[0]})
    checkpoint_id = secrets.token_hex(_ID_BYTES)
    files = {
        f"{version:020d}.checkpoint.{checkpoint_id}.{part:05d}.json": data
        for part, data in enumerate(packed, start=1)
    }
    parts = _Parts(version, checkpoint_id, list(files), now_ms)
    # The list of parts is written last: without it, the parts are ignored.
    files[checkpoint_file(version)] = msgspec.json.encode(parts)
    return EncodedCheckpoint(files, len(parts.parts), checkpoint_id)


def read_checkpoint(store: Store, version: int) -> list[Action]:
    """The actions of a checkpoint, which may be that of a table that was at this place before.

    Args:
        store: the log folder.
        version: the checkpoint's version.

    Raises:
        CorruptLogError: a file is missing or damaged.
    """
    name = checkpoint_file(version)
    url = f"{store.url}/{name}"
    data = _get(store, name)
    text = version_file.unpack(data, url)
    version_file.check_lines(text, len(data), url)
    parts = _read_parts(text, version, url)
    if parts is None:
        actions = version_file.decode_lines(text, url)
        if not actions:
            raise CorruptLogError(url, "the checkpoint holds neither actions nor a list of parts")
        return actions
    return [action for part in parts for action in _read_part(store, part)]


def _pack(actions: Sequence[Action]) -> Iterator[bytes]:
    """The actions as a part, or as several parts if readers would refuse a single one as too large."""
    text = version_file.encode_lines(actions)
    if len(text) > MAX_UNPACKED and len(actions) > 1:
        half = len(actions) // 2
        yield from _pack(actions[:half])
        yield from _pack(actions[half:])
    else:
        yield version_file.pack(text, legacy=True)


def _read_parts(text: bytes, version: int, url: str) -> list[str] | None:
    """The names of the parts; None if the file holds the actions themselves."""
    # A line of actions has one key, which is neither of these.
    if b'"checkpointId"' not in text[:4096] and b'"parts"' not in text[:4096]:
        return None
    try:
        parts = msgspec.json.decode(text, type=_Parts)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if parts.version != version:
        raise CorruptLogError(url, f"it lists the parts of version {parts.version}, not {version}")
    if not parts.parts or len(set(parts.parts)) != len(parts.parts):
        raise CorruptLogError(url, "its list of parts is empty or names one twice")
    prefix = f"{version:020d}.checkpoint."
    for part in parts.parts:
        if not part.startswith(prefix) or "/" in part:
            raise CorruptLogError(url, f"it lists a part {part!r} that is no part of this checkpoint")
    return parts.parts


def _read_part(store: Store, name: str) -> list[Action]:
    return version_file.decode(_get(store, name), f"{store.url}/{name}")


def _get(store: Store, name: str) -> bytes:
    try:
        return store.get(name)
    except ObjectMissingError:
        raise CorruptLogError(f"{store.url}/{name}", "the file is missing") from None


AVRO_STATE = "avro-state"


class Pointer(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The newest state or checkpoint when the pointer was written."""

    version: int
    size: int
    size_in_bytes: int = 0
    num_files: int = 0
    created_time: int = 0
    format: str | None = None
    state_dir: str | None = None
    parts: int | None = None
    checkpoint_id: str | None = None

    @property
    def is_state(self) -> bool:
        """Whether it names an Avro state; otherwise it names a JSON checkpoint."""
        return self.format == AVRO_STATE

    @property
    def folder(self) -> str:
        """The state's folder; older writers may omit it."""
        return self.state_dir or state_folder(self.version)


def read_pointer(log: Store) -> Pointer | None:
    """The pointer; None if it is missing or damaged."""
    try:
        pointer = msgspec.json.decode(log.get(POINTER), type=Pointer)
    except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return pointer if pointer.version >= 0 else None


def advance_pointer(log: Store, pointer: Pointer) -> None:
    """Set the pointer to a newer state; a pointer to the same or a newer one is not changed."""
    current = read_pointer(log)
    if (
        current is None
        or current.version < pointer.version
        or (current.version == pointer.version and current.is_state != pointer.is_state)
    ):
        log.put(POINTER, msgspec.json.encode(pointer))
