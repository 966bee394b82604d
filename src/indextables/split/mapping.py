"""The Tantivy fields of each column, and the filters that they can evaluate.

A column has no field (it is stored only, or its type cannot be indexed: conditions are evaluated on the
rows), one field, or several. A field name is a letter for the kind, a colon and the column name, so that
column names never collide with other fields. Two fields belong to the split itself: `_row` (see
`indextables.split.footer`) and `_partial`, which names the fields that do not hold the whole value of a row.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field as dataclass_field
from dataclasses import replace
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import OptionError, SplitError
from indextables.options import Options
from indextables.options.declare import FieldOption, Option
from indextables.options.log import STATS_COLUMNS
from indextables.options.writing import (
    FAST_FIELDS,
    FIELD_TYPES,
    JSON_MODE,
    NO_TERM_FILTER_FIELDS,
    NON_FAST_FIELDS,
    RECORD,
    STORE_ONLY_FIELDS,
    TERM_FILTERS,
    TEXT_RECORD,
    TEXT_TOKEN_LENGTH,
    TOKEN_LENGTH,
    TOKENIZER,
    TYPEMAP,
    Tokenizer,
    find_tokenizer,
    parse_record,
    parse_token_length,
    parse_tokenizer,
    parse_types,
)
from indextables.records import dataclass
from indextables.schema.type_info import NESTED, TypeKind, index_type, is_collated, is_variant, kind_of

ROW_FIELD = "_row"
PARTIAL_FIELD = "_partial"
SYSTEM_FIELDS = frozenset({ROW_FIELD, PARTIAL_FIELD})
# The longest term that Tantivy takes is 65,530 bytes; a json term starts with its path.
MAX_TERM = 65_530
_LEAST_ROWS = 1000
_DISTINCT = 0.95
_KEY = r"^[0-9A-Za-z_:+=-]{16,128}$"
# Free text has this many bytes on average, and a blank in this share of the values.
_TEXT_LENGTH = 20
_WITH_BLANKS = 0.9


class Kind(StrEnum):
    """What a field holds.

    `STRING` the value as one term; `HASH` a 32-bit hash of it (`indextables.split.index.encode.hash_values`);
    `TEXT` its tokens; `JSON` a nested value, or text that is JSON; `IP` an address; `I64` a whole number:
    integers, unscaled decimals of up to 18 digits, dates in days, timestamps, times and day-time intervals in
    microseconds; `F64` a float or double, with one zero and one NaN, which is the greatest value; `BOOL` a
    boolean.
    """

    STRING = "string"
    HASH = "hash"
    TEXT = "text"
    JSON = "json"
    IP = "ip"
    I64 = "i64"
    F64 = "f64"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class Field:
    """One Tantivy field of a column.

    `indexed`: terms can be looked up. `fast`: the values are in a column of the index (ranges, existence,
    aggregates). `max_token`: the longest token, or value, in bytes that is indexed. `record`: what a posting
    has (basic, freq, position). `root`: the key of a json value that is not an object ("" if values are
    objects). `term_filter`: its terms are in a filter of the split, unless that would be too large.
    `resolved` is False only in a plan: the writer chooses between `STRING` and `HASH` from a sample of rows
    (`resolve_fields`).
    """

    column: str
    name: str
    kind: Kind
    tokenizer: str = "raw"
    record: str = "basic"
    indexed: bool = True
    fast: bool = False
    max_token: int = MAX_TERM
    root: str = ""
    # Fields that differ in nothing else have the same index.
    term_filter: bool = dataclass_field(default=True, compare=False)
    resolved: bool = True

    @property
    def analysis(self) -> Tokenizer:
        """How texts of this field become terms."""
        try:
            return find_tokenizer(self.tokenizer)
        except ValueError as error:
            raise SplitError(
                f"the field '{self.name}' cannot be searched ({error}); the split was written by a newer "
                "release: upgrade"
            ) from error

    @property
    def term_record(self) -> str:
        """The part of postings that queries for single terms read: positions are for phrases only."""
        return "freq" if self.record == "position" else self.record

    @property
    def may_be_partial(self) -> bool:
        """Whether rows can be listed in `_partial` for this field."""
        return self.kind in (Kind.STRING, Kind.TEXT, Kind.JSON, Kind.IP)


_KEYS = {
    "name": "column",
    "field": "name",
    "type": "kind",
    "tokenizer": "tokenizer",
    "record": "record",
    "indexed": "indexed",
    "fast": "fast",
    "maxToken": "max_token",
    "root": "root",
    "termFilter": "term_filter",
}


@dataclass(frozen=True, slots=True)
class Mapping:
    """All fields of a split, in the order of its columns."""

    fields: tuple[Field, ...] = ()

    def fields_of(self, column: str) -> tuple[Field, ...]:
        """The fields of a column; names are compared without case."""
        lower_name = column.lower()
        return tuple(f for f in self.fields if f.column.lower() == lower_name)

    def find(self, column: str, *kinds: Kind) -> Field | None:
        """The column's field of one of these kinds, in the order of the kinds."""
        own = {f.kind: f for f in self.fields_of(column)}
        return next((own[kind] for kind in kinds if kind in own), None)

    def to_json(self) -> str:
        """The text that the log keeps as docMappingJson: an array of objects that have a `name`."""
        # The key `termFilter` is omitted for fields with a filter, so that their texts equal those of earlier
        # releases.
        rows = [
            {k: getattr(f, a) for k, a in sorted(_KEYS.items()) if k != "termFilter" or not f.term_filter}
            for f in self.fields
        ]
        return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Mapping":
        """Parse the text of a mapping; unknown keys are ignored."""
        try:
            return cls(tuple(_field_of(row) for row in msgspec.json.decode(text, type=list[_StoredField])))
        except (ValueError, RecursionError) as error:
            raise SplitError(
                f"the document mapping cannot be understood ({type(error).__name__}: {error}); "
                "the split was written by another system or a newer release"
            ) from error

    def with_filters_of(self, plan: "Mapping") -> "Mapping":
        """The same fields, with term filters for those that have one in a plan."""
        filtered = {field.column for field in plan.fields if field.term_filter}
        return self.with_fields(replace(f, term_filter=f.column in filtered) for f in self.fields)

    def with_fields(self, fields: Iterable[Field]) -> "Mapping":
        """The same mapping with other fields."""
        return replace(self, fields=tuple(fields))


class _StoredField(msgspec.Struct, rename="camel"):
    name: str
    field: str
    type: str
    tokenizer: str
    record: str
    indexed: bool
    fast: bool
    max_token: int
    root: str
    term_filter: bool = True


def _field_of(row: _StoredField) -> Field:
    return Field(
        row.name,
        row.field,
        Kind(row.type),
        tokenizer=row.tokenizer,
        record=row.record,
        indexed=row.indexed,
        fast=row.fast,
        max_token=row.max_token,
        root=row.root,
        term_filter=row.term_filter,
    )


_LETTERS = {
    Kind.STRING: "s",
    Kind.HASH: "h",
    Kind.TEXT: "t",
    Kind.JSON: "j",
    Kind.IP: "a",
    Kind.I64: "n",
    Kind.F64: "f",
    Kind.BOOL: "b",
}


def field_name(kind: Kind, column: str) -> str:
    """The Tantivy name of a column's field.

    >>> field_name(Kind.TEXT, "message")
    't:message'
    """
    return f"{_LETTERS[kind]}:{column}"


def mapping_for(schema: pa.Schema, options: Options, partition_columns: Sequence[str] = ()) -> Mapping:
    """Plan the fields of a table's columns from the options; partition columns have none.

    Raises OptionError for an option that names an unknown column, or a type that does not fit it.
    """
    indexing = _IndexingOptions(schema, options, frozenset(name.lower() for name in partition_columns))
    fields = [
        field
        for column in schema
        if column.name.lower() not in indexing.partitions
        for field in _fields_of(column, indexing)
    ]
    return Mapping(tuple(fields))


def check_address_types(schema: pa.Schema, options: Options, partition_columns: Sequence[str] = ()) -> None:
    """Refuse the type `ip` for a column whose comparisons would still be those of texts.

    Tables of earlier releases may have such columns, so that only options of a write are checked.

    Raises:
        OptionError: a column is `ip` and another type, or a partition column is `ip`.
    """
    indexing = _IndexingOptions(schema, options, frozenset(name.lower() for name in partition_columns))
    for name, types in indexing.types.items():
        if "ip" in types and len(types) > 1:
            raise OptionError(
                f"option '{TYPEMAP.key}.{name}' is '{','.join(types)}', but a column is either ip or other "
                "types: what finds addresses cannot find texts; choose ip or the others"
            )
    if indexing.partitions_as_addresses:
        raise OptionError(
            f"option '{TYPEMAP.key}.{indexing.partitions_as_addresses[0]}' is 'ip', but the table is "
            "partitioned by that column, and partition values are compared as texts; leave the option out, "
            "or partition by another column"
        )


def applicable(options: Options, columns: Sequence[str], own: Collection[str]) -> Options:
    """The options without indexing defaults that name other columns.

    Args:
        options: all options.
        columns: the columns that defaults may be for.
        own: keys that were set explicitly; they are not changed.
    """
    names = {name.lower() for name in columns}
    listing = (FAST_FIELDS, NON_FAST_FIELDS, STORE_ONLY_FIELDS, NO_TERM_FILTER_FIELDS)
    lists = {option.key.lower() for option in listing}
    families = {
        TYPEMAP.key.lower(): parse_types,
        TOKENIZER.key.lower(): parse_tokenizer,
        RECORD.key.lower(): parse_record,
        TOKEN_LENGTH.key.lower(): parse_token_length,
    }
    values = {}
    for key, text in options.values.items():
        family = next((family for family in families if key.startswith(f"{family}.")), None)
        suffix = "" if family is None else key.removeprefix(f"{family}.")
        is_list = key in lists or (family is not None and _parses(families[family], suffix))
        root = suffix.partition(".")[0]
        if key in own or suffix in names or root in names or (family is None and key not in lists):
            values[key] = text
        elif is_list:
            column_names = [name.strip() for name in text.split(",")]
            if rest := [name for name in column_names if name.lower().partition(".")[0] in names]:
                values[key] = ",".join(rest)
    return Options(values)


class _IndexingOptions:
    """The indexing options of each column, checked against the schema.

    A name may be a path within a column (`user.age`): then the option applies to the whole column.
    A nested column has one tokenizer: the type or tokenizer of a path is that of all strings in the column.
    Partition columns are accepted and have no index: their value is known for each split.
    """

    def __init__(self, schema: pa.Schema, options: Options, partitions: frozenset[str]) -> None:
        self.columns = {field.name.lower(): field for field in schema}
        self.partitions = partitions
        self.partitions_as_addresses: list[str] = []
        # Names that are no column, with the option that has them.
        self._unknown: dict[str, str] = {}
        # Columns with statistics that are unknown, too; without indexing options they are refused elsewhere.
        self._statistics = [n for n in options.get(STATS_COLUMNS) if n.lower() not in self.columns]
        # Options of paths within columns, by the column.
        self.paths: dict[str, tuple[FieldOption, str]] = {}
        types = self._family(options, TYPEMAP, parse_types)
        self.types = {name: value for name, value in types.items() if name in self.columns}
        self.tokenizers = self._of_columns(self._family(options, TOKENIZER, parse_tokenizer), TOKENIZER)
        self.records = self._of_columns(self._family(options, RECORD, parse_record), RECORD)
        self.lengths = self._of_columns(self._family(options, TOKEN_LENGTH, parse_token_length), TOKEN_LENGTH)
        self.fast = self._list(options, FAST_FIELDS)
        self.non_fast = self._list(options, NON_FAST_FIELDS)
        self.store_only = self._list(options, STORE_ONLY_FIELDS)
        self.no_filter = self._list(options, NO_TERM_FILTER_FIELDS)
        self.filters = options.get(TERM_FILTERS)
        self.text_record = options.get(TEXT_RECORD)
        self.text_length = options.get(TEXT_TOKEN_LENGTH)
        self.json_fast = options.get(JSON_MODE) == "full"
        self._set_types_of_paths({name: value for name, value in types.items() if name not in self.types})
        self._check_names()
        self._check_agreement()

    def _of_columns(self, values: dict[str, Any], family: FieldOption) -> dict[str, Any]:
        """The values of columns; a value of a path within a column becomes the value of the column."""
        columns = {name: value for name, value in values.items() if name in self.columns}
        for path, value in values.items():
            if (root := self._root(path)) is not None:
                self.paths[root] = (family, path)
                if columns.setdefault(root, value) != value:
                    raise OptionError(
                        f"option '{family.key}.{path}' gives the column '{root}' another value than before, "
                        "and all strings within a column are indexed alike; give one"
                    )
        return columns

    def _set_types_of_paths(self, types: dict[str, tuple[str, ...]]) -> None:
        """Choose the tokenizer of nested columns: text has words, and the other types have whole values."""
        tokenizers: dict[str, str] = {}
        for path, (first, *others) in types.items():
            root = path.partition(".")[0]
            self.paths[root] = (TYPEMAP, path)
            if first == "ip" or others:
                kinds = ",".join((first, *others))
                raise OptionError(
                    f"option '{TYPEMAP.key}.{path}' is '{kinds}', but a field within a column is either "
                    "string or text"
                )
            tokenizer = self.tokenizers.get(root, "default") if first == "text" else "raw"
            if tokenizers.setdefault(root, tokenizer) != tokenizer or (
                self.tokenizers.get(root, tokenizer) != tokenizer
            ):
                raise OptionError(
                    f"option '{TYPEMAP.key}.{path}' is '{first}', but other options index the strings in the "
                    f"column '{root}' in another way, and all of them are indexed alike; give one type"
                )
            if first == "text":
                self.records.setdefault(root, self.text_record)
        self.tokenizers.update(tokenizers)

    def _column(self, name: str, key: str) -> str | None:
        """The column of a name, in lower case; None for a partition column or an unknown one."""
        lower = name.lower()
        if lower not in self.columns:
            self._unknown.setdefault(name, key)
            return None
        return None if lower in self.partitions else lower

    def _column_or_path(self, name: str, key: str) -> str | None:
        """As `_column`, but a path within a column is returned in lower case."""
        root = self._root(name)
        if root is None:
            return self._column(name, key)
        return None if root in self.partitions else name.lower()

    def _check_names(self) -> None:
        if not self._unknown:
            return
        for name in self._statistics:
            self._unknown.setdefault(name, STATS_COLUMNS.key)
        keys = ", ".join(f"'{key}'" for key in dict.fromkeys(self._unknown.values()))
        names = ", ".join(f"'{name}'" for name in self._unknown)
        columns = ", ".join(field.name for field in self.columns.values())
        plural = len(self._unknown) > 1
        raise OptionError(
            f"option {keys} names the column{'s' if plural else ''} {names}, but the columns are: {columns}"
        )

    def _list(self, options: Options, option: Option[tuple[str, ...]]) -> frozenset[str]:
        names = options.get(option)
        if option is not FAST_FIELDS:
            # A list entry for a field within a column does not apply to the column.
            names = tuple(name for name in names if self._root(name) is None)
        columns = (self._column(self._root(name) or name, option.key) for name in names)
        return frozenset(name for name in columns if name is not None)

    def _root(self, name: str) -> str | None:
        """The column of a path within it; None for the name of a column, and for an unknown one."""
        root = name.lower().partition(".")[0]
        return root if name.lower() not in self.columns and root in self.columns else None

    def _family(self, options: Options, family: FieldOption, parse: Any) -> dict[str, Any]:  # noqa: ANN401
        values: dict[str, Any] = {}
        for suffix, text in options.family(family).items():
            key = f"{family.key}.{suffix}"
            for name, value in self._readings(suffix, text, key, parse):
                if name in values and values[name] != value and family is not TYPEMAP:
                    raise OptionError(
                        f"option '{key}' gives the column '{name}' another value than before; give one"
                    )
                merged = (*values[name], *value) if name in values and family is TYPEMAP else value
                values[name] = tuple(dict.fromkeys(merged)) if family is TYPEMAP else merged
        return values

    def _readings(self, suffix: str, text: str, key: str, parse: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
        """The columns and values of an entry: `<column> = value`, or `<value> = column, column`."""
        column_names = [part.strip().lower() for part in text.split(",") if part.strip()]
        is_name = suffix in self.columns or self._root(suffix) is not None
        as_column = is_name and _parses(parse, text)
        as_list = _parses(parse, suffix) and all(
            name in self.columns or self._root(name) is not None for name in column_names
        )
        if as_column and as_list and column_names != [suffix]:
            raise OptionError(
                f"option '{key}' is ambiguous, since columns have the names of its values; "
                f"write '{key.removesuffix(suffix)}<column>' for each column"
            )
        if not as_column and (as_list or (_parses(parse, suffix) and not is_name)):
            entries = [(name, parse(suffix)) for name in column_names]
        else:
            entries = [(suffix, parse(text))]
        if parse is parse_types:
            self.partitions_as_addresses += [
                n for n, types in entries if n in self.partitions and "ip" in types
            ]
        values = [(self._column_or_path(name, key), value) for name, value in entries]
        return [(name, value) for name, value in values if name is not None]

    def _check_agreement(self) -> None:
        for first, second, one, other in (
            (self.fast, self.non_fast, FAST_FIELDS, NON_FAST_FIELDS),
            (self.fast, self.store_only, FAST_FIELDS, STORE_ONLY_FIELDS),
            (frozenset(self.types), self.store_only, TYPEMAP, STORE_ONLY_FIELDS),
        ):
            if both := sorted(first & second):
                raise OptionError(
                    f"the column '{both[0]}' is named by '{one.key}' and by '{other.key}', which exclude "
                    "each other; name it in one of them"
                )


def _parses(parse: Any, text: str) -> bool:  # noqa: ANN401
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _fields_of(column: pa.Field, indexing: _IndexingOptions) -> list[Field]:
    key, name, kind = column.name.lower(), column.name, column.type
    is_text = kind_of(kind) is TypeKind.STRING
    if key in indexing.types and not is_text and indexing.types[key] != ("json",):
        raise _mismatch(TYPEMAP, name, kind, "only string columns can be " + " or ".join(FIELD_TYPES))
    if key in indexing.store_only or is_variant(kind):
        fields: list[Field] = []
    elif is_text:
        if is_collated(column) and not set(indexing.types.get(key, ("text",))) <= {"text", "json", "ip"}:
            raise _mismatch(TYPEMAP, name, kind, "it has a collation, and the index compares bytes; use text")
        plain: tuple[str, ...] = () if is_collated(column) else ("auto",)
        types = indexing.types.get(key, plain)
        if "text" in types and key in indexing.fast:
            # The fast column of a text field would have tokens, but the option requires values.
            types = tuple(dict.fromkeys((*types, "string")))
        fields = [_string_field(name, each, indexing) for each in types]
    elif kind_of(kind) in NESTED:
        fields = [_json_field(name, indexing, root=json_root(name, kind))]
    else:
        if key in indexing.types:
            raise _mismatch(TYPEMAP, name, kind, "only strings and nested columns can be json")
        fields = _value_fields(column, indexing)
    if key in indexing.paths and all(field.kind is not Kind.JSON for field in fields):
        option, path = indexing.paths[key]
        raise _mismatch(
            option, name, kind, f"it is not indexed as json, so that '{path}' has no index of its own"
        )
    _check_use(column, fields, indexing)
    if key in indexing.no_filter or not indexing.filters:
        fields = [replace(field, term_filter=False) for field in fields]
    return fields


def _string_field(name: str, field_type: str, indexing: _IndexingOptions) -> Field:
    key = name.lower()
    fast = key not in indexing.non_fast
    match field_type:
        case "text":
            return Field(
                name, field_name(Kind.TEXT, name), Kind.TEXT,
                tokenizer=indexing.tokenizers.get(key, "default"),
                record=indexing.records.get(key, indexing.text_record),
                max_token=indexing.lengths.get(key, indexing.text_length),
            )  # fmt: skip
        case "json":
            return _json_field(name, indexing, root=name)
        case "ip":
            return Field(name, field_name(Kind.IP, name), Kind.IP, fast=fast)
        case "exact_only":
            return Field(name, field_name(Kind.HASH, name), Kind.HASH, indexed=False, fast=True)
        case _:
            explicit = field_type == "string" or key in indexing.fast or key in indexing.non_fast
            return Field(name, field_name(Kind.STRING, name), Kind.STRING, fast=fast, resolved=explicit)


def _json_field(name: str, indexing: _IndexingOptions, *, root: str) -> Field:
    key = name.lower()
    return Field(
        name, field_name(Kind.JSON, name), Kind.JSON,
        tokenizer=indexing.tokenizers.get(key, "raw"),
        record=indexing.records.get(key, "basic"),
        fast=(indexing.json_fast or key in indexing.fast) and key not in indexing.non_fast,
        max_token=indexing.lengths.get(key, MAX_TERM - 1024),
        root=root,
    )  # fmt: skip


def _value_fields(column: pa.Field, indexing: _IndexingOptions) -> list[Field]:
    kind = value_kind(column.type)
    if kind is None:
        return []
    fast = column.name.lower() not in indexing.non_fast
    # Tantivy finds booleans by their terms only.
    indexed = not fast or kind is Kind.BOOL
    return [Field(column.name, field_name(kind, column.name), kind, indexed=indexed, fast=fast)]


def json_root(column: str, arrow: pa.DataType) -> str:
    """The key under which values of a nested column that are not objects are indexed; "" for objects."""
    return "" if kind_of(arrow) in {TypeKind.STRUCT, TypeKind.MAP} else column


def value_kind(arrow: pa.DataType) -> Kind | None:
    """The kind of field that holds values of a flat type exactly; None if there is none."""
    type_of_index = index_type(arrow)
    return None if type_of_index is None else Kind(type_of_index)


def _check_use(column: pa.Field, fields: list[Field], indexing: _IndexingOptions) -> None:
    """Refuse an option that would have no effect on the column."""
    key, kinds = column.name.lower(), {field.kind for field in fields}
    tokenized = bool(kinds & {Kind.TEXT, Kind.JSON})
    for names, option in (
        (indexing.tokenizers, TOKENIZER),
        (indexing.records, RECORD),
        (indexing.lengths, TOKEN_LENGTH),
    ):
        if key in names and not tokenized:
            raise _mismatch(option, column.name, column.type, "it must be indexed as text or json for that")
    if key in indexing.fast and not fields:
        raise _mismatch(FAST_FIELDS, column.name, column.type, "values of this type are not indexed")
    if key in indexing.fast and kinds == {Kind.HASH}:
        raise _mismatch(
            FAST_FIELDS, column.name, column.type, "an exact_only field is fast and holds no values"
        )
    if key in indexing.non_fast and (not fields or kinds & {Kind.HASH}):
        raise _mismatch(
            NON_FAST_FIELDS, column.name, column.type, "it has no fast field that could be left out"
        )


def _mismatch(option: FieldOption | Option[Any], column: str, arrow: pa.DataType, reason: str) -> OptionError:
    return OptionError(f"option '{option.key}' does not fit the column '{column}' ({arrow}): {reason}")


def resolve_fields(mapping: Mapping, sample: pa.Table) -> Mapping:
    """The mapping with its unresolved string fields resolved from a sample of rows.

    A string column that no option names is indexed by terms or by hash. Terms answer every kind of search,
    and are small where values repeat. In a column of keys (trace ids, UUIDs, digests) or free text (comments,
    messages) they would be larger than the rows and most of the work of a write, and a hash finds a value as
    fast.
    """
    return mapping.with_fields(
        field if field.resolved else _resolve_field(field, sample) for field in mapping.fields
    )


def _resolve_field(field: Field, sample: pa.Table) -> Field:
    if not is_nearly_unique(sample.column(field.column)):
        return replace(field, resolved=True)
    name = field_name(Kind.HASH, field.column)
    return replace(field, name=name, kind=Kind.HASH, indexed=False, fast=True, resolved=True)


def is_nearly_unique(values: pa.ChunkedArray) -> bool:
    """Whether the values are keys or free text, and nearly all distinct.

    Keys have some length, and only letters, digits and few other characters. Free text is longer on average
    and has blanks.

    >>> import uuid
    >>> is_nearly_unique(pa.chunked_array([[str(uuid.uuid4()) for _ in range(2000)]]))
    True
    >>> is_nearly_unique(pa.chunked_array([[f"user {i} logged in at noon" for i in range(2000)]]))
    True
    >>> is_nearly_unique(pa.chunked_array([[f"user {i}" for i in range(2000)]]))
    False
    """
    rows = len(values) - values.null_count
    if rows < _LEAST_ROWS or not (_is_free_text(values) or _are_keys(values)):
        return False
    return bool(pc.count_distinct(values).as_py() >= _DISTINCT * rows)


def _are_keys(values: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, _KEY)).as_py())


def _is_free_text(values: pa.ChunkedArray) -> bool:
    if pc.mean(pc.binary_length(values)).as_py() < _TEXT_LENGTH:
        return False
    return bool(pc.mean(pc.match_substring(values, " ")).as_py() >= _WITH_BLANKS)
