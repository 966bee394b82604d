"""Facts that a state must carry but its record has no field for (PROTOCOL.md, "The state").

They travel in the header of the state's Avro file, under one key of ours that other readers pass over:
the protocol with its features, the time of the commit, skipped splits, and the last batches of streams.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from indextables.errors import CorruptLogError
from indextables.log.format.actions import MergeSkip, Protocol, Txn

KEY = "indextables.carried"


class Carried(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a state says beyond its record.

    `whole` is false where another engine wrote the state, so that there may be more to be told.
    """

    protocol: Protocol | None = None
    timestamp: int | None = None
    token: str | None = None
    mergeskips: list[MergeSkip] = []
    txns: list[Txn] = []
    whole: bool = True


def encode_carried(carried: Carried) -> dict[str, str]:
    """The header entries of a state."""
    return {KEY: msgspec.json.encode(carried).decode()}


def decode_carried(header: Mapping[str, str], url: str) -> Carried | None:
    """What the state's writer put there; nothing when it was another engine."""
    text = header.get(KEY)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Carried)
    except msgspec.DecodeError as error:
        raise CorruptLogError(url, f"its header entry {KEY} is damaged ({error})") from None
