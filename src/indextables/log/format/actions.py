"""The records of a version file, and their JSON (PROTOCOL.md, "Version files").

A line of a version file is an object with one key that names the action. Fields that are absent and
fields that are null mean the same. No field is ever added inside one of the original's actions, since
its older readers drop a line with a field they do not know; our own facts travel in actions of their
own (`commitInfo`, `txn`), which they skip.
"""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field

# Numbers as Arrow, Avro and Java hold them.
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Milliseconds since 1970, in the years 1 to 9999.
Moment: TypeAlias = Annotated[int, Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class _Record(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How our records look as JSON: camel case, absent when at the default."""


class Protocol(_Record, frozen=True):
    """The reader and writer versions and the features that the table requires."""

    # A factory is never taken for a default when writing: these are written even when they are 1.
    min_reader_version: Int64 = field(default_factory=lambda: 1)
    min_writer_version: Int64 = field(default_factory=lambda: 1)
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Format(Struct, frozen=True):
    """Which system wrote the table."""

    provider: str = "indextables"
    options: dict[str, str] = {}


class Metadata(_Record, frozen=True):
    """The table's identity, schema, partition columns and configuration."""

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    partition_columns: list[str] | None = None
    format: Format | None = None
    configuration: dict[str, str] | None = None
    created_time: Int64 | None = None


class Add(_Record, frozen=True):
    """A split that belongs to the table from this version on."""

    path: str
    partition_values: dict[str, str | None] | None = None
    # Written even when zero: the original's reader refuses an `add` without them.
    size: Int64 = field(default_factory=int)
    modification_time: Int64 = field(default_factory=int)
    data_change: bool | None = None
    stats: str | None = None
    min_values: dict[str, str] | None = None
    max_values: dict[str, str] | None = None
    num_records: Int64 | None = None
    footer_start_offset: Int64 | None = None
    footer_end_offset: Int64 | None = None
    has_footer_offsets: bool | None = None
    delete_opstamp: Int64 | None = None
    split_tags: list[str] | None = None
    num_merge_ops: Int32 | None = None
    doc_mapping_json: str | None = None
    doc_mapping_ref: str | None = None
    uncompressed_size_bytes: Int64 | None = None
    time_range_start: str | Int64 | None = None
    time_range_end: str | Int64 | None = None
    companion_source_files: list[str] | None = None
    companion_delta_version: Int64 | None = None
    companion_fast_field_mode: str | None = None


class Remove(_Record, frozen=True):
    """A split that belongs to the table no longer."""

    path: str
    deletion_timestamp: Int64 | None = None
    data_change: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Int64 | None = None


class MergeSkip(_Record, frozen=True):
    """A split that a merge could not take, and when to try again; it stays in the table."""

    path: str
    skip_timestamp: Int64
    reason: str
    operation: str = ""
    partition_values: dict[str, str | None] | None = None
    size: Int64 | None = None
    retry_after: Int64 | None = None
    skip_count: Int64 = 1


class CommitInfo(_Record, frozen=True):
    """The audit record of a commit; `token` makes the bytes of every commit unique.

    `base_token` is the token of the version before (PROTOCOL.md, "Lineage"). `lineage` is written in JSON
    checkpoints only: the tokens of the last versions, the newest last.
    """

    timestamp: Moment
    operation: str
    token: str
    operation_parameters: dict[str, str] = {}
    operation_metrics: dict[str, Int64] = {}
    engine: str | None = None
    user_metadata: str | None = None
    base_token: str | None = None
    lineage: list[str | None] = []


class Txn(_Record, frozen=True):
    """The last batch of an application that is in the table, for exactly-once streams."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None


Action: TypeAlias = Protocol | Metadata | Add | Remove | MergeSkip | CommitInfo | Txn

# The key of a line, and the action it holds. `skip` is an alias that one reader of the original takes.
ACTIONS: dict[str, type[Struct]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "add": Add,
    "remove": Remove,
    "mergeskip": MergeSkip,
    "skip": MergeSkip,
    "commitInfo": CommitInfo,
    "txn": Txn,
}


class Line(Struct, frozen=True, omit_defaults=True):
    """One line of a version file: exactly one of these is set; unknown keys are passed over."""

    protocol: Protocol | None = None
    metaData: Metadata | None = None  # noqa: N815 - the key on disk
    add: Add | None = None
    remove: Remove | None = None
    mergeskip: MergeSkip | None = None
    skip: MergeSkip | None = None
    commitInfo: CommitInfo | None = None  # noqa: N815 - the key on disk
    txn: Txn | None = None

    def actions(self) -> list[Action]:
        """The known actions on this line: one, or none."""
        fields = (
            self.add,
            self.remove,
            self.metaData,
            self.protocol,
            self.mergeskip,
            self.skip,
            self.commitInfo,
            self.txn,
        )
        return [action for action in fields if action is not None]


def line_of(action: Action) -> dict[str, Any]:
    """The action under its key, ready to be encoded.

    >>> import msgspec
    >>> msgspec.json.encode(line_of(Txn(app_id="clicks", version=7)))
    b'{"txn":{"appId":"clicks","version":7}}'
    """
    for key, kind in ACTIONS.items():
        if isinstance(action, kind):
            return {key: action}
    raise AssertionError(f"not an action: {type(action).__name__}")
