"""A table with a column of every type that can be stored, at the ends of its range."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.schema.type_info import VARIANT

EDGE_MICROS = [-(2**63), -62135596800000000, -1, 0, 1, 253402300799999999, 2**63 - 1, None]


def _stamps(zone: str | None) -> Any:
    return pa.array(EDGE_MICROS, pa.int64()).view(pa.timestamp("us", zone))


def every_type() -> pa.Table:
    """Eight rows; every column has a null somewhere."""
    n = len(EDGE_MICROS)
    big = Decimal("99999999999999999999.999999999999999999")
    texts = ["", "a", "\x00\x01", "x" * 1_000_000, "Zoë 東京 🙂 e\u0301", '"\\\n\t', "\U0010ffff\ud7ff", None]
    struct = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    return pa.table(
        {
            "byte": pa.array([-128, 127, 0, 1, 2, 3, 4, None], pa.int8()),
            "short": pa.array([-(2**15), 2**15 - 1, 0, 1, 2, 3, 4, None], pa.int16()),
            "int": pa.array([-(2**31), 2**31 - 1, 0, 1, 2, 3, 4, None], pa.int32()),
            "long": pa.array([-(2**63), 2**63 - 1, 0, 1, 2**53 + 1, 3, 4, None], pa.int64()),
            "float": pa.array([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-45, 3.4e38, None], pa.float32()),
            "double": pa.array([float("nan"), float("inf"), float("-inf"), -0.0, 0.1, 5e-324, 1.7e308, None]),
            "decimal1": pa.array([Decimal(9), Decimal(-9), *[Decimal(0)] * 5, None], pa.decimal128(1, 0)),
            "decimal18": pa.array([Decimal("-9999999999999999.99"), *[Decimal("0.01")] * 6, None], pa.decimal128(18, 2)),
            "decimal38": pa.array([big, big.copy_negate(), *[Decimal(0)] * 5, None], pa.decimal128(38, 18)),
            "boolean": pa.array([True, False, True, False, True, False, True, None]),
            "string": pa.array(texts),
            "binary": pa.array([b"", b"\x00\xff", *[bytes(range(256))] * 5, None]),
            "date": pa.array([-(2**31), 2**31 - 1, 0, 1, -1, 19000, 2932896, None], pa.int32()).view(pa.date32()),
            "timestamp": _stamps("UTC"),
            "timestamp_ntz": _stamps(None),
            "time": pa.array([0, 1, 86399999999, *[5] * 4, None], pa.int64()).view(pa.time64("us")),
            "day_time": pa.array([-(2**63), 2**63 - 1, *[0] * 5, None], pa.int64()).view(pa.duration("us")),
            "months": pa.array([-(2**31), 2**31 - 1, *[12] * 5, None], pa.int32()),
            "calendar": pa.array([pa.MonthDayNano([1, -2, 3]), *[pa.MonthDayNano([0, 0, 0])] * 6, None]),
            "struct": pa.array([{"a": 1, "b": [{"c": "x"}, None, {"c": None}]}, {"a": None, "b": []}, *[{"a": 2, "b": None}] * 5, None], struct),
            "empty": pa.array([{}, {}, None, {}, {}, {}, {}, None], pa.struct([])),
            "empties": pa.array([[{}], [], None, [None, {}], [], [], [], None], pa.list_(pa.struct([]))),
            "array": pa.array([[1, None], [], None, [2], [3], [4], [5], None], pa.list_(pa.int64())),
            "arrays": pa.array([[[1], None, []], [], None, [[2]], [], [], [], None], pa.list_(pa.list_(pa.int64()))),
            "map": pa.array([[("k", 1), ("l", None)], [], None, *[[("m", 2)]] * 4, None], pa.map_(pa.string(), pa.int64())),
            "map_of_int": pa.array([[(1, [{"z": 1.5}])], [], None, *[[(2, None)]] * 4, None], pa.map_(pa.int32(), pa.list_(pa.struct([("z", pa.float64())])))),
            "void": pa.nulls(n),
            "voids": pa.array([[None], [], None, *[[None, None]] * 4, None], pa.list_(pa.null())),
            "variant": pa.array([{"value": b"\x0c\x05", "metadata": b"\x01\x00\x00"}] * (n - 1) + [None], VARIANT),
        }
    )  # fmt: skip


def logs(rows: int, seed: int = 1) -> pa.Table:
    """Log rows, a smaller kin of those the benchmark writes."""
    random = np.random.default_rng(seed)
    words = np.array([f"word{i}" for i in range(2000)])
    picked = words[np.minimum(random.zipf(1.3, rows * 8), 1999)].reshape(rows, 8)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp() * 1_000_000
    numbers = random.integers(0, 2**62, rows)
    return pa.table(
        {
            "ts": pa.array(int(start) + np.arange(rows) * 1000).cast(pa.timestamp("us", "UTC")),
            "level": pa.array(np.array(["INFO", "WARN", "ERROR"])[random.integers(0, 3, rows)]),
            "status": pa.array(random.integers(200, 600, rows).astype("int32")),
            "latency": pa.array(random.exponential(50, rows)),
            "trace_id": pa.array([f"{n:032x}" for n in numbers]),
            "message": pa.array([" ".join(line) for line in picked]),
        }
    )


def sized_rows(rows: int, seed: int = 1) -> Any:
    """Log rows with 320 bytes each that no codec makes smaller: about 420 bytes in a split."""
    data = np.random.default_rng(seed).bytes(320 * rows)
    payload = pa.array([data[start : start + 320] for start in range(0, len(data), 320)])
    return logs(rows, seed).append_column("payload", payload)
