"""Made-up entries of a large table of web events, as many as asked for, all columns at once.

The table is partitioned by day. A split has bounds of eight columns; `id` and `at` grow from split to
split, so that a condition on them is selective, the others overlap.
"""

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.format.files import FILES, conform
from indextables.options import Options
from indextables.schema.conversion import map_of
from indextables.schema.spark import from_arrow
from indextables.schema.values import PARQUET_TAG
from indextables.split.mapping import mapping_for

COLUMNS: pa.Schema = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        ("status", pa.int32()),
        ("latency", pa.float64()),
        ("host", pa.string()),
        ("service", pa.string()),
        ("user", pa.string()),
        ("message", pa.string()),
    ]
)
SCHEMA_STRING = from_arrow(COLUMNS)
FIRST_DAY = date(2022, 1, 1)
ROWS_PER_SPLIT = 100_000
DOC_MAPPING = mapping_for(COLUMNS, Options.parse({}), ["day"]).to_json()
DOC_MAPPING_REF = "pLq0c1Zr5tW9xY_-"

_STATISTICS = COLUMNS.names[1:]
_DAY_MICROS = 86_400_000_000
_CHUNK = 50_000
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def day_text(number: int) -> str:
    """The value of a partition."""
    return str(np.datetime64(FIRST_DAY) + number)


def first_id(row: int) -> int:
    """The least `id` of a split."""
    return row * ROWS_PER_SPLIT


def entries(rows: int, *, partitions: int, start: int = 0, version: int = 0) -> pa.Table:
    """Live entries, in the order of their partitions.

    Args:
        rows: how many.
        partitions: over how many days they are spread, evenly.
        start: the number of the first; entries with other numbers are other splits.
        version: the version that added them.
    """
    seed = np.random.default_rng(start + 1)
    chunks = [
        _chunk(np.arange(first, min(first + _CHUNK, start + rows)), start, rows, partitions, version, seed)
        for first in range(start, start + rows, _CHUNK)
    ]
    return pa.concat_tables(chunks) if chunks else FILES.empty_table()


def _chunk(
    numbers: np.ndarray, start: int, rows: int, partitions: int, version: int, seed: np.random.Generator
) -> pa.Table:
    count = len(numbers)
    day = (numbers - start) * partitions // rows
    days = _texts((np.datetime64(FIRST_DAY) + day).astype("datetime64[D]").astype(str))
    size = seed.integers(20_000_000, 120_000_000, count)
    footer = seed.integers(2_000, 9_000, count)
    low, high = _bounds(numbers, day, seed)
    columns = {
        "path": _joined("day=", days, "/part-", _padded(numbers % 200, 5), "-", _hex(seed, count), ".split"),
        "partitionValues": _map(["day"], [days]),
        "size": pa.array(size),
        "modificationTime": pa.array(1_700_000_000_000 + numbers * 100),
        "dataChange": pa.repeat(True, count),
        "stats": _joined(
            '{"numRecords":', str(ROWS_PER_SPLIT), ',"nullCount":{"user":', _texts(footer), "}}"
        ),
        "minValues": _map(_STATISTICS, low),
        "maxValues": _map(_STATISTICS, high),
        "numRecords": pa.repeat(pa.scalar(ROWS_PER_SPLIT, pa.int64()), count),
        "footerStartOffset": pa.array(size - footer),
        "footerEndOffset": pa.array(size),
        "hasFooterOffsets": pa.repeat(True, count),
        "splitTags": pa.ListArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)), pa.repeat(PARQUET_TAG, count)
        ),
        "numMergeOps": pa.repeat(pa.scalar(1, pa.int32()), count),
        "docMappingRef": pa.repeat(DOC_MAPPING_REF, count),
        "uncompressedSizeBytes": pa.array(size * 3),
        "addedAtVersion": pa.repeat(pa.scalar(version, pa.int64()), count),
        "addedAtTimestamp": pa.array(1_700_000_000_000 + numbers * 100),
    }
    return conform(pa.table(columns))


def _bounds(
    numbers: np.ndarray, day: np.ndarray, seed: np.random.Generator
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The texts of the least and the greatest values of the columns with statistics."""
    count = len(numbers)
    days_since_1970 = (np.datetime64(FIRST_DAY) - np.datetime64("1970-01-01")).astype(int)
    at = (days_since_1970 + day) * _DAY_MICROS + seed.integers(0, _DAY_MICROS // 2, count)
    latency = seed.random(count)
    name = _padded(seed.integers(0, 5_000, count), 4)
    low = [
        _texts(at),
        _texts(numbers * ROWS_PER_SPLIT),
        pa.repeat("200", count),
        _texts(np.round(latency, 6)),
        _joined("host-", name),
        pa.repeat("auth", count),
        _joined("user-", _hex(seed, count, 4)),
        _joined("GET /api/v1/items/", name),
    ]
    high = [
        _texts(at + _DAY_MICROS // 3),
        _texts(numbers * ROWS_PER_SPLIT + ROWS_PER_SPLIT - 1),
        pa.repeat("504", count),
        _texts(np.round(latency * 1_000, 6)),
        _joined("host-9", name),
        pa.repeat("search", count),
        _joined("user-f", _hex(seed, count, 4)),
        _joined("timeout after ", name, " ms (retry"),
    ]
    return low, high


def _map(names: list[str], values: list[pa.Array]) -> pa.MapArray:
    """The map with these keys in every row, and the values row by row."""
    width, count = len(names), len(values[0])
    keys = pa.array(names).take(pa.array(np.tile(np.arange(width), count)))
    order = np.arange(width * count).reshape(width, count).T.reshape(-1)
    items = pa.concat_arrays([value.cast(pa.string()) for value in values]).take(pa.array(order))
    return map_of(np.arange(0, width * count + 1, width, dtype=np.int32), keys, items, None)


def _joined(*parts: str | pa.Array) -> pa.Array:
    scalars = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(""))


def _texts(values: np.ndarray) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _padded(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(_texts(numbers), width, "0")


def _hex(seed: np.random.Generator, count: int, digits: int = 32) -> pa.Array:
    letters = _HEX[seed.integers(0, 16, (count, digits), np.uint8)]
    return (
        pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(digits), count, [None, pa.py_buffer(np.ascontiguousarray(letters))]
        )
        .cast(pa.binary())
        .cast(pa.string())
    )
