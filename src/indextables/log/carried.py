"""Facts that a state must carry but its record has no field for (PROTOCOL.md, "The state").

They travel in the header of the state's Avro file, under one key of ours that other readers pass over:
the protocol with its features, the time of the commit, skipped splits, and the last batches of streams.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from indextables.errors import CorruptLogError
from indextables.log.format.actions import MergeSkip, Protocol, Txn

KEY = "indextables.carried"


class Carried(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a state says beyond its record.

    `lineage` holds the tokens of the last versions, the newest last (PROTOCOL.md, "Lineage"). `whole` is
    false where another engine wrote the state, so that there may be more to be told.
    """

    protocol: Protocol | None = None
    timestamp: int | None = None
    token: str | None = None
    lineage: list[str | None] = []
    mergeskips: list[MergeSkip] = []
    txns: list[Txn] = []
    whole: bool = True

    @property
    def commits(self) -> Sequence[str | None]:
        """The lineage; of states that were written before there was one, the token of their version."""
        return self.lineage or ([self.own_token] if self.own_token else [])

    @property
    def own_token(self) -> str | None:
        """The token of the state's version; earlier releases wrote a file's size and time if it had none."""
        return None if not self.token or self.token.startswith("(") else self.token


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
