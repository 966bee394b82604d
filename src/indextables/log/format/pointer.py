"""`_last_checkpoint`: a hint where to start reading (PROTOCOL.md, "The pointer").

It is only ever a hint. It may be missing, stale or damaged, and then a listing finds what it should have
named; it is never the reason for a wrong answer.
"""

import msgspec
from msgspec import Struct

from indextables.errors import ObjectMissingError
from indextables.log.format.names import POINTER, state_folder
from indextables.store import Store

AVRO_STATE = "avro-state"


class Pointer(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The newest state or checkpoint that its writer knew of."""

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
        """The state's folder; older writers may leave it out."""
        return self.state_dir or state_folder(self.version)


def read_pointer(log: Store) -> Pointer | None:
    """The pointer, or nothing when it is missing or damaged."""
    try:
        pointer = msgspec.json.decode(log.get(POINTER), type=Pointer)
    except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return pointer if pointer.version >= 0 else None


def advance_pointer(log: Store, pointer: Pointer) -> None:
    """Point at a newer state; a newer pointer, or one that says the same, is left alone."""
    current = read_pointer(log)
    if (
        current is None
        or current.version < pointer.version
        or (current.version == pointer.version and current.is_state != pointer.is_state)
    ):
        log.put(POINTER, msgspec.json.encode(pointer))
