"""Options of writing: tokenizers, indexing, the size of splits, schema evolution, metadata of commits."""

import functools
import re
from collections.abc import Callable
from enum import Enum, auto

from indextables.options.declare import (
    EVERYWHERE,
    Option,
    Options,
    Parser,
    Where,
    boolean,
    choice,
    field_option,
    integer,
    names,
    option,
    optional_text,
    size,
)
from indextables.records import dataclass


class TokenBoundary(Enum):
    """Where a tokenizer splits a text.

    `NONE`: the whole text is one token. `WORD`: a token is a run of letters and digits. `SPACE`: a token is
    a run of anything but white space. `CHARACTER`: as `WORD`, but each Chinese, Japanese or Korean character
    is a token. `GRAM`: every part of the text of some lengths is a token; all have the same position.
    """

    NONE = auto()
    WORD = auto()
    SPACE = auto()
    CHARACTER = auto()
    GRAM = auto()


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The conversion of a text to terms of the index.

    Attributes:
        name: The name in options and in the document mapping.
        boundary: Where it splits texts.
        lower_case: Whether terms are in lower case.
        stemmer: The language whose endings are removed from terms; None if terms are not stemmed.
        grams: The shortest and longest gram, in characters, for `GRAM`.
    """

    name: str
    boundary: TokenBoundary
    lower_case: bool = True
    stemmer: str | None = None
    grams: tuple[int, int] | None = None

    @property
    def splits(self) -> bool:
        """Whether a text can become several terms."""
        return self.boundary is not TokenBoundary.NONE

    @property
    def keeps_words(self) -> bool:
        """Whether every run of ASCII letters and digits is part of one term, apart from its case."""
        words = {TokenBoundary.WORD, TokenBoundary.SPACE, TokenBoundary.CHARACTER}
        return self.boundary in words and self.stemmer is None

    @property
    def without_stemming(self) -> "Tokenizer":
        """The tokenizer that splits the same way without stemming: for prefixes and misspelt words."""
        return self if self.stemmer is None else _TOKENIZERS["default"]


_STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
_TOKENIZERS = {
    tokenizer.name: tokenizer
    for tokenizer in (
        Tokenizer("default", TokenBoundary.WORD),
        Tokenizer("raw", TokenBoundary.NONE, lower_case=False),
        Tokenizer("whitespace", TokenBoundary.SPACE),
        Tokenizer("cjk", TokenBoundary.CHARACTER),
        Tokenizer("ngram", TokenBoundary.GRAM, grams=(2, 3)),
        *(
            Tokenizer(f"{code}_stem", TokenBoundary.WORD, stemmer=language)
            for code, language in _STEMMERS.items()
        ),
    )
}
TOKENIZER_NAMES = tuple(_TOKENIZERS)


@functools.lru_cache(maxsize=256)
def find_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a name: one of `TOKENIZER_NAMES`, or `ngram_<min>_<max>`.

    Raises:
        ValueError: There is none.

    >>> find_tokenizer("en_stem").stemmer, find_tokenizer("ngram_3_5").grams
    ('english', (3, 5))
    """
    if (tokenizer := _TOKENIZERS.get(name)) is not None:
        return tokenizer
    parts = name.split("_")
    if parts[0] != "ngram":
        raise ValueError(f"there is no tokenizer {name!r}; the tokenizers are {', '.join(TOKENIZER_NAMES)}")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ValueError("an n-gram tokenizer is ngram or ngram_<min>_<max>")
    low, high = int(parts[1]), int(parts[2])
    if not 1 <= low <= high <= 20:
        raise ValueError("grams are 1 to 20 characters long, the shortest first")
    return Tokenizer(name, TokenBoundary.GRAM, grams=(low, high))


# Options with this prefix describe the index. They are stored in the properties of a table, for later writes.
INDEXING_PREFIX = "indexing."

_WRITE = frozenset({Where.WRITE, Where.COMMAND})

FIELD_TYPES = ("string", "exact_only", "text", "json", "ip")
RECORDS = ("basic", "freq", "position")
TOKEN_LENGTHS = {"tantivy_max": 65530, "default": 255, "legacy": 40, "min": 1}
MAX_TOKEN = 65530
_MOST_THREADS = 8


# Types of IndexTables for Scala that index texts without their UUIDs, or without matches of a pattern.
_COMPACT_TYPES = ("text_uuid_exactonly", "text_uuid_strip")
_COMPACT_PREFIXES = ("text_custom_exactonly:", "text_custom_strip:")


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text)


def parse_types(text: str) -> tuple[str, ...]:
    """Parse one field type or several (`string,text`).

    The compact types of IndexTables for Scala (`text_uuid_strip`, `text_custom_exactonly:<pattern>`, ...) are
    text here, so that all values can be found.

    >>> parse_types("string,text"), parse_types("text_custom_strip:[0-9]{4,}")
    (('string', 'text'), ('text',))
    """
    plain = text.strip().lower()
    if plain in _COMPACT_TYPES:
        return ("text",)
    for prefix in _COMPACT_PREFIXES:
        if plain.startswith(prefix) and _is_pattern(text.strip()[len(prefix) :]):
            return ("text",)
    types = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not types or any(part not in FIELD_TYPES for part in types):
        raise ValueError
    return types


def parse_tokenizer(text: str) -> str:
    """Parse the name of a tokenizer."""
    return find_tokenizer(text.strip().lower()).name


def parse_record(text: str) -> str:
    """Parse the content of postings: rows, term frequencies, or positions."""
    lowered = text.strip().lower()
    if lowered not in RECORDS:
        raise ValueError
    return lowered


def parse_token_length(text: str) -> int:
    """Parse a maximum length in bytes, or one of its names."""
    lowered = text.strip().lower()
    length = TOKEN_LENGTHS.get(lowered)
    length = int(lowered) if length is None else length
    if not 1 <= length <= MAX_TOKEN:
        raise ValueError
    return length


def _either(parse: Callable[[str], object]) -> Callable[[str, str], None]:
    """Check `family.<field> = value`, or `family.<value> = field, field`."""

    def check(suffix: str, text: str) -> None:
        if not suffix:
            raise ValueError("the key must end with the name of a field")
        try:
            parse(suffix)
        except ValueError:
            parse(text)
            return
        if not text.strip():
            raise ValueError("a list of fields is expected")

    return check


TYPEMAP = field_option(
    "indexing.typemap",
    "<field>",
    _either(parse_types),
    "How a string column is indexed: string (exact), exact_only (exact, by a small hash), text (words), "
    "json, ip; several, such as string,text, index the column in several ways. The compact types of "
    "IndexTables for Scala (text_uuid_strip, text_custom_exactonly:<pattern>, ...) are text, whole. Also "
    "typemap.<type> = field, field. A string column that is not named is string, or exact_only where "
    "nearly every value differs and is a key or free text. Strings within a nested or json "
    "column are indexed alike: the type of one field (user.name = text or string) is that of the column.",
    expects="a field type (" + ", ".join(FIELD_TYPES) + "), or with a type as key a list of fields,",
    where=_WRITE,
)
TOKENIZER = field_option(
    "indexing.tokenizer",
    "<field>",
    _either(parse_tokenizer),
    "Tokenizer of a text field; also tokenizer.<name> = field, field.",
    expects="a tokenizer (" + ", ".join(TOKENIZER_NAMES) + ", ngram_<min>_<max>), or a list of fields,",
    where=_WRITE,
)
RECORD = field_option(
    "indexing.indexrecordoption",
    "<field>",
    _either(parse_record),
    "What the index stores for each token of a text or json field: basic (rows), freq (term frequencies, for "
    "ranking), position (positions, for phrases); also indexrecordoption.<option> = field, field.",
    expects="one of basic, freq, position, or a list of fields,",
    where=_WRITE,
)
TOKEN_LENGTH = field_option(
    "indexing.tokenLength",
    "<field>",
    _either(parse_token_length),
    "Maximum length of an indexed token of a text field, in bytes; also tokenLength.<n> = field, field. Rows "
    "with longer tokens are evaluated without the index.",
    expects="a number from 1 to 65530, or one of tantivy_max, default, legacy, min, or a list of fields,",
    where=_WRITE,
)
TEXT_RECORD = option(
    "indexing.text.indexRecordOption",
    choice(*RECORDS),
    "position",
    "Default of indexing.indexrecordoption for text fields.",
    where=_WRITE,
    default_text="position; freq in a companion index",
)
TEXT_TOKEN_LENGTH = option(
    "indexing.text.maxTokenLength",
    Parser(parse_token_length, "a number from 1 to 65530, or one of tantivy_max, default, legacy, min"),
    255,
    "Default of indexing.tokenLength for text fields.",
    where=_WRITE,
)
FAST_FIELDS = option(
    "indexing.fastfields",
    names,
    (),
    "Columns with a fast field (a columnar copy in the index), for filters, sorting and aggregates without "
    "reading rows. Most columns have one by default; a text column gets one with its whole value.",
    where=_WRITE,
)
NON_FAST_FIELDS = option(
    "indexing.nonfastfields",
    names,
    (),
    "Columns without a fast field; numbers, dates and booleans without one are indexed as terms.",
    where=_WRITE,
)
STORE_ONLY_FIELDS = option(
    "indexing.storeonlyfields",
    names,
    (),
    "Columns that are not indexed; conditions on them are evaluated on the rows.",
    where=_WRITE,
)
TERM_FILTERS = option(
    "indexing.termFilters",
    boolean,
    True,
    "Whether splits get term filters: small Bloom filters of the words of text columns, the values of string "
    "columns, and integers that nearly all differ and have no order, by which a search or an equality skips "
    "splits without opening their index. They take at most 2% of a split, and up to 1 KiB of a small one.",
    where=_WRITE,
)
NO_TERM_FILTER_FIELDS = option(
    "indexing.noTermFilterFields",
    names,
    (),
    "Columns without a term filter.",
    where=_WRITE,
)
JSON_MODE = option(
    "indexing.json.mode",
    choice("full", "minimal"),
    "full",
    "full: json fields are indexed and have fast fields; minimal: they are only indexed.",
    where=_WRITE,
)

HEAP_SIZE = option(
    "indexWriter.heapSize",
    size,
    128 << 20,
    "Memory for building an index, for all threads of one split together; at least 16M per thread. About "
    "150 bytes a log row: more memory gives fewer, larger segments.",
    where=EVERYWHERE,
)
MERGE_HEAP_SIZE: Option[int | None] = option(
    "merge.heapSize",
    Parser(size.parse, size.expects),
    None,
    "The same for indexes that a merge builds.",
    where=EVERYWHERE,
    default_text="indexWriter.heapSize",
)
COMPANION_HEAP_SIZE: Option[int | None] = option(
    "companion.writerHeapSize",
    Parser(size.parse, size.expects),
    None,
    "The same for the splits of a companion index.",
    where=EVERYWHERE,
    default_text="indexWriter.heapSize",
)


def with_heap_size(options: Options, own: Option[int | None]) -> Options:
    """Return the options with the operation's own memory for an index as that of every index."""
    own_size = options.get(own)
    return options if own_size is None else Options.parse({HEAP_SIZE.key: own_size}).over(options)


INDEX_THREADS = option(
    "indexWriter.threads",
    Parser(lambda text: min(integer(1).parse(text), _MOST_THREADS), "a whole number of at least 1"),
    1,
    "Threads that index one split, at most 8. One keeps the rows in order and the index smallest.",
    where=_WRITE,
)
BATCH_ROWS = option(
    "indexWriter.batchSize",
    integer(1),
    10_000,
    "Maximum number of rows that are added to the index at once.",
    where=_WRITE,
)
BATCH_BYTES = option(
    "indexWriter.maxBatchBufferSize",
    size,
    90 << 20,
    "Maximum size of the rows that are added to the index at once; a larger row is added alone.",
    where=_WRITE,
)
TEMP_DIRECTORY = option(
    "indexWriter.tempDirectoryPath",
    optional_text,
    None,
    "Folder in which indexes are built before they are written into a split (default: the system's).",
    where=EVERYWHERE,
)
ROW_GROUP_BYTES = option(
    "write.rowGroupSize",
    size,
    64 << 20,
    "Size in memory at which a row group is closed.",
    where=_WRITE,
)
PAGE_BYTES = option(
    "write.pageSize",
    size,
    40 << 10,
    "Size of a Parquet data page before compression. Smaller pages make single rows cheaper to read, "
    "and scans slower and files larger.",
    where=_WRITE,
)
COMPRESSION_LEVEL = option(
    "write.compressionLevel",
    integer(1, 22),
    3,
    "Compression level of zstd for rows and index; for the index of a companion split the default is 9.",
    where=_WRITE,
)


_WRITE_ONLY = frozenset({Where.WRITE})

TARGET_SPLIT_SIZE = option(
    "write.optimizeWrite.targetSplitSize",
    size,
    1 << 30,
    "Size at which a split is closed and the next one is started; splits are within 20% of it.",
    where=_WRITE_ONLY,
    default_text="1G",
)
MERGE_SCHEMA = option(
    "mergeSchema",
    boolean,
    False,
    "Allow an append to add columns; they are null in existing rows.",
    where=_WRITE_ONLY,
)
OVERWRITE_SCHEMA = option(
    "overwriteSchema",
    boolean,
    False,
    "Allow an overwrite of the whole table to replace its schema and partition columns.",
    where=_WRITE_ONLY,
)
USER_METADATA = option(
    "commit.userMetadata",
    optional_text,
    None,
    "A text that is recorded in the table's history.",
    where=_WRITE_ONLY,
)
TXN_APP_ID = option(
    "txn.appId",
    optional_text,
    None,
    "With txn.version: the id of the application that writes. A batch is never committed twice.",
    where=_WRITE_ONLY,
)
TXN_VERSION = option(
    "txn.version",
    integer(0),
    0,
    "Number of the batch; it must increase from batch to batch.",
    where=_WRITE_ONLY,
)
REPLACE_WHERE = option(
    "replaceWhere",
    optional_text,
    None,
    "With mode overwrite: replace only the rows that meet this condition; the new rows must meet it, "
    "too. The condition must select whole splits, as one on partition columns does.",
    where=_WRITE_ONLY,
)
PARTITION_OVERWRITE = option(
    "partitionOverwriteMode",
    choice("static", "dynamic"),
    "static",
    "With mode overwrite: static replaces the whole table, dynamic only the partitions that are written. "
    "In Spark the default is spark.sql.sources.partitionOverwriteMode.",
    where=_WRITE_ONLY,
)
OPTIMIZE_WRITE = option(
    "write.optimizeWrite.enabled",
    boolean,
    False,
    "In Spark: shuffle the rows before they are written, for fewer and evenly sized splits.",
    where=_WRITE_ONLY,
)
DISTRIBUTION_MODE = option(
    "write.optimizeWrite.distributionMode",
    choice("hash", "balanced", "none"),
    "hash",
    "How rows are shuffled: hash brings all rows of a partition into one task; balanced divides large "
    "partitions among tasks and combines small ones; none does not shuffle. Rows of a table without "
    "partition columns are balanced by hash and balanced.",
    where=_WRITE_ONLY,
)
