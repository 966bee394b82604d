"""Log rows that look like those of a shop: eight columns, about 220 bytes a row, the same for a seed.

`ts level service host status latency_ms trace_id message`. Messages are sentences with numbers, paths and
words of a long-tailed vocabulary. Marker words are planted at known rates, so that a benchmark can ask for
one hit, a hundred, one percent or half of all rows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH = 65_536
START_MICROS = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

# Marker words: how many rows hold one.
NEEDLE = "xyzzyneedle"
HUNDRED = "hundredfold"
ONE_PERCENT = "retransmit"
HALF = "gateway"

_LEVELS = pa.array(["DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
_LEVEL_SHARES = [0.12, 0.70, 0.12, 0.055, 0.005]
_SERVICES = pa.array(
    [
        f"{name}-{kind}"
        for name in ("cart", "orders", "payment", "search", "mail", "auth")
        for kind in ("api", "worker", "db")
    ]
)
_HOSTS = pa.array([f"{zone}-node-{i:03d}.shop.internal" for zone in ("eu", "us", "ap") for i in range(120)])
_STATUS = np.array(
    [200, 201, 204, 301, 304, 400, 401, 403, 404, 409, 429, 500, 502, 503, 504], dtype=np.int32
)
_PATHS = pa.array(
    [
        f"/{a}/{b}"
        for a in ("api", "v1", "v2", "static")
        for b in ("orders", "cart", "login", "items", "search", "pay", "mail", "health")
    ]
)
_TEMPLATES = (
    ("request ", "path", " finished after ", "number", " ms for user ", "number"),
    ("connection to ", "host", " refused, retry ", "number", " of 5"),
    ("cache miss for key item:", "number", " in region ", "word"),
    ("user ", "number", " logged in from 10.", "octet", ".", "octet", ".", "octet"),
    ("timeout while reading ", "path", " after ", "number", " ms, upstream ", "host"),
    ("job ", "word", "-", "number", " done, ", "number", " rows written"),
)

Numbers = np.ndarray[Any, Any]


def batches(rows: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """So many rows, in batches; the same rows for the same seed."""
    for start in range(0, rows, BATCH):
        yield _batch(start, min(BATCH, rows - start), rows, seed)


def table(rows: int, seed: int = 1) -> pa.Table:
    """So many rows at once."""
    return pa.Table.from_batches(batches(rows, seed))


def reader(rows: int, seed: int = 1) -> pa.RecordBatchReader:
    """So many rows as a stream."""
    made = batches(rows, seed)
    first = next(made)

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from made

    return pa.RecordBatchReader.from_batches(first.schema, all_of_them())


def _batch(start: int, count: int, total: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng((seed, start))
    position = np.arange(start, start + count)
    level = rng.choice(len(_LEVELS), count, p=_LEVEL_SHARES)
    status = np.where(level >= 3, _STATUS[rng.integers(11, 15, count)], _STATUS[rng.integers(0, 11, count)])
    micros = START_MICROS + position * 86_400_000_000 * 30 // max(total, 1) + rng.integers(0, 1000, count)
    return pa.record_batch(
        {
            "ts": pa.array(micros, pa.timestamp("us", tz="UTC")),
            "level": _LEVELS.take(pa.array(level)),
            "service": _SERVICES.take(pa.array(_skewed(rng, len(_SERVICES), count))),
            "host": _HOSTS.take(pa.array(rng.integers(0, len(_HOSTS), count))),
            "status": pa.array(status, pa.int32()),
            "latency_ms": pa.array(np.round(rng.exponential(60.0, count), 3)),
            "trace_id": _hex(rng, count),
            "message": _messages(rng, position, total),
        }
    )


def _messages(rng: np.random.Generator, position: Numbers, total: int) -> pa.Array:
    count = len(position)
    kind = rng.integers(0, len(_TEMPLATES), count)
    order = np.argsort(kind, kind="stable")
    parts = [_sentences(rng, _TEMPLATES[k], int((kind == k).sum())) for k in range(len(_TEMPLATES))]
    inverse = np.empty(count, dtype=np.int64)
    inverse[order] = np.arange(count)
    sentences = pa.concat_arrays(parts).take(pa.array(inverse))
    tail = [_words(rng, count) for _ in range(5)]
    return pc.binary_join_element_wise(sentences, *tail, _markers(rng, position, total), " ")


def _sentences(rng: np.random.Generator, template: tuple[str, ...], count: int) -> pa.Array:
    return pc.binary_join_element_wise(*(_piece(rng, part, count) for part in template), "")


def _piece(rng: np.random.Generator, part: str, count: int) -> pa.Array | pa.Scalar:
    match part:
        case "path":
            return _PATHS.take(pa.array(rng.integers(0, len(_PATHS), count)))
        case "host":
            return _HOSTS.take(pa.array(rng.integers(0, len(_HOSTS), count)))
        case "number":
            return pa.array(rng.integers(1, 20_000, count)).cast(pa.string())
        case "octet":
            return pa.array(rng.integers(0, 256, count)).cast(pa.string())
        case "word":
            return _words(rng, count)
        case _:
            return pa.scalar(part)


def _markers(rng: np.random.Generator, position: Numbers, total: int) -> pa.Array:
    every = max(total // 100, 1)
    needle = position == total // 2
    hundred = position % every == every // 3
    percent = position % 100 == 17
    half = rng.random(len(position)) < 0.5
    words = np.full(len(position), "ok", dtype=object)
    words[half] = HALF
    for mask, word in ((percent, ONE_PERCENT), (hundred, HUNDRED), (needle, NEEDLE)):
        words[mask] = words[mask] + (" " + word)
    return pa.array(words, pa.string())


def _vocabulary() -> pa.Array:
    rng = np.random.default_rng(7)
    starts = (
        "ar",
        "be",
        "con",
        "de",
        "ex",
        "fi",
        "gra",
        "ho",
        "in",
        "ju",
        "ka",
        "lo",
        "mi",
        "no",
        "op",
        "pre",
        "re",
        "su",
        "tra",
        "un",
    )
    middles = ("ba", "ci", "du", "fe", "ga", "li", "mo", "na", "po", "ra", "se", "ti", "vo", "xa", "ze")
    ends = ("ble", "ction", "der", "ful", "ing", "ment", "nal", "ous", "r", "s", "ted", "ty", "x", "y")
    count = 30_000
    made = pc.binary_join_element_wise(
        pa.array(rng.choice(starts, count)),
        pa.array(rng.choice(middles, count)),
        pa.array(rng.choice(middles, count)),
        pa.array(rng.choice(ends, count)),
        "",
    )
    return pc.unique(made)


_VOCABULARY = _vocabulary()


def _words(rng: np.random.Generator, count: int) -> pa.Array:
    picks = np.minimum(rng.zipf(1.25, count), len(_VOCABULARY)) - 1
    return _VOCABULARY.take(pa.array(picks))


def _skewed(rng: np.random.Generator, choices: int, count: int) -> Numbers:
    return np.minimum(rng.geometric(0.18, count) - 1, choices - 1)


def _hex(rng: np.random.Generator, count: int) -> pa.Array:
    text = rng.bytes(16 * count).hex().encode()
    offsets = pa.array(np.arange(0, 32 * count + 1, 32), pa.int32())
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(text))
