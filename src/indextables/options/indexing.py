"""Options of what is indexed, and of how a split is built."""

from collections.abc import Callable

from indextables.options.declare import EVERYWHERE, Parser, Where, field_option, option, refused
from indextables.options.parsers import choice, integer, names, optional_text, size

# Options whose keys start so describe the index; a table remembers them, so that later writes need not
# repeat them.
INDEXING_PREFIX = "indexing."

_WRITE = frozenset({Where.WRITE, Where.COMMAND})

FIELD_TYPES = ("string", "exact_only", "text", "json", "ip")
RECORDS = ("basic", "freq", "position")
TOKEN_LENGTHS = {"tantivy_max": 65530, "default": 255, "legacy": 40, "min": 1}
MAX_TOKEN = 65530

STEMMERS = {
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
TOKENIZERS = ("default", "raw", "whitespace", "cjk", "ngram", *(f"{short}_stem" for short in STEMMERS))


def ngram_bounds(tokenizer: str) -> tuple[int, int] | None:
    """The shortest and longest gram of `ngram` (2 to 3) or `ngram_<min>_<max>`; None for another name.

    >>> ngram_bounds("ngram"), ngram_bounds("ngram_3_5"), ngram_bounds("raw")
    ((2, 3), (3, 5), None)
    """
    parts = tokenizer.split("_")
    if parts[0] != "ngram":
        return None
    if len(parts) == 1:
        return (2, 3)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ValueError("an n-gram tokenizer is ngram or ngram_<min>_<max>")
    low, high = int(parts[1]), int(parts[2])
    if not 1 <= low <= high <= 20:
        raise ValueError("grams are 1 to 20 characters long, the shortest first")
    return (low, high)


def parse_types(text: str) -> tuple[str, ...]:
    """One field type or several (`string,text`)."""
    found = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not found or any(part not in FIELD_TYPES for part in found):
        raise ValueError
    return found


def parse_tokenizer(text: str) -> str:
    """The name of a tokenizer."""
    lowered = text.strip().lower()
    if ngram_bounds(lowered) is None and lowered not in TOKENIZERS:
        raise ValueError
    return lowered


def parse_record(text: str) -> str:
    """What a posting keeps: the row, its term frequency, or the positions too."""
    lowered = text.strip().lower()
    if lowered not in RECORDS:
        raise ValueError
    return lowered


def parse_token_length(text: str) -> int:
    """A limit in bytes, or one of its names."""
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
            raise ValueError("a field's name belongs at the end of the key")
        try:
            parse(suffix)
        except ValueError:
            parse(text)
            return
        if not text.strip():
            raise ValueError("no field is named")

    return check


TYPEMAP = field_option(
    "indexing.typemap",
    "<field>",
    _either(parse_types),
    "How a string column is indexed: string (exact), exact_only (exact, by a small hash), text (words), "
    "json, ip; several, such as string,text, index the column in several ways. Also "
    "typemap.<type> = field, field. A string column that is not named is string, or exact_only where "
    "nearly every value differs.",
    expects="a field type (" + ", ".join(FIELD_TYPES) + "), or with a type as key a list of fields,",
)
TOKENIZER = field_option(
    "indexing.tokenizer",
    "<field>",
    _either(parse_tokenizer),
    "How a text field is cut into tokens; also tokenizer.<name> = field, field.",
    expects="a tokenizer (" + ", ".join(TOKENIZERS) + ", ngram_<min>_<max>), or a list of fields,",
)
RECORD = field_option(
    "indexing.indexrecordoption",
    "<field>",
    _either(parse_record),
    "What the index keeps of each token of a text or json field: basic (the row), freq (how often, for "
    "ranking), position (where, for phrases); also indexrecordoption.<option> = field, field.",
    expects="one of basic, freq, position, or a list of fields,",
)
TOKEN_LENGTH = field_option(
    "indexing.tokenLength",
    "<field>",
    _either(parse_token_length),
    "The longest token of a text field that is indexed, in bytes; also tokenLength.<n> = field, field. Rows "
    "with longer tokens are found by looking at the row.",
    expects="a number from 1 to 65530, or one of tantivy_max, default, legacy, min, or a list of fields,",
)
TEXT_RECORD = option(
    "indexing.text.indexRecordOption",
    choice(*RECORDS),
    "position",
    "indexrecordoption of text fields that have none of their own.",
    where=_WRITE,
)
TEXT_TOKEN_LENGTH = option(
    "indexing.text.maxTokenLength",
    Parser(parse_token_length, "a number from 1 to 65530, or one of tantivy_max, default, legacy, min"),
    255,
    "tokenLength of text fields that have none of their own.",
    where=_WRITE,
)
FAST_FIELDS = option(
    "indexing.fastfields",
    names,
    (),
    "Columns whose values stand in a column of the index, for filters, sorting and aggregates without "
    "reading rows. Most columns have that anyway; a text column gets its exact value beside its tokens.",
    where=_WRITE,
)
NON_FAST_FIELDS = option(
    "indexing.nonfastfields",
    names,
    (),
    "Columns without a fast field; a number, date or truth value without one is indexed as a term.",
    where=_WRITE,
)
STORE_ONLY_FIELDS = option(
    "indexing.storeonlyfields",
    names,
    (),
    "Columns that are not indexed at all; conditions on them are answered from the rows.",
    where=_WRITE,
)
JSON_MODE = option(
    "indexing.json.mode",
    choice("full", "minimal"),
    "full",
    "full: json fields are indexed and have fast fields; minimal: they are indexed only.",
    where=_WRITE,
)
refused(
    "indexing.indexonlyfields",
    "a split always keeps every column of its rows, so that merging and other Parquet readers see the "
    "whole table; drop the column before writing, or index it and do not select it",
)

HEAP_SIZE = option(
    "indexWriter.heapSize",
    size,
    128 << 20,
    "Memory for the index being built, for all threads of one split together; at least 16M per thread. About "
    "150 bytes a log row: more memory gives fewer, larger segments.",
    where=EVERYWHERE,
)
INDEX_THREADS = option(
    "indexWriter.threads",
    integer(1, 8),
    1,
    "Threads that index one split. One keeps the rows in order and the index smallest.",
    where=_WRITE,
)
BATCH_ROWS = option(
    "indexWriter.batchSize",
    integer(1),
    10_000,
    "The most rows that are handed to the index at once.",
    where=_WRITE,
)
BATCH_BYTES = option(
    "indexWriter.maxBatchBufferSize",
    size,
    90 << 20,
    "The most bytes of rows that are handed to the index at once; a larger row goes alone.",
    where=_WRITE,
)
TEMP_DIRECTORY = option(
    "indexWriter.tempDirectoryPath",
    optional_text,
    None,
    "Where the index is built before it goes into the split; the system's temporary folder if not given.",
    where=EVERYWHERE,
)
ROW_GROUP_BYTES = option(
    "write.rowGroupSize",
    size,
    64 << 20,
    "Close a row group when it holds so many bytes in memory.",
    where=_WRITE,
)
PAGE_BYTES = option(
    "write.pageSize",
    size,
    40 << 10,
    "Bytes of a Parquet data page before compression: smaller pages make single rows cheaper to fetch, and "
    "scans and files larger.",
    where=_WRITE,
)
COMPRESSION_LEVEL = option(
    "write.compressionLevel", integer(1, 22), 3, "Level of zstd for rows and index.", where=_WRITE
)
refused(
    "schema.filterEmptyObjects",
    "the fields of an object are not listed in the schema of a split, so there is nothing to filter",
)
refused(
    "write.arrowFfi.batchSize",
    "batches keep the size they come in; indexWriter.batchSize says how many rows go to the index at once",
)
refused(
    "splitConversion.maxParallelism",
    "a split is written in one pass, there is no conversion; indexWriter.threads is what can be chosen",
)
