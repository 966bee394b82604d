"""Segments of many sources become few."""

import json
import random
from typing import Any

from indextables.split.index.files import _balance


def test_shares_are_even_in_number_and_documents() -> None:
    chance = random.Random(7)
    segments: list[dict[str, Any]] = [
        {"segment_id": f"{i:032x}", "max_doc": chance.randint(1, 1000)} for i in range(33)
    ]
    one, other = _balance(segments, 2)
    assert abs(len(one) - len(other)) <= 1
    assert sorted(map(json.dumps, one + other)) == sorted(map(json.dumps, segments))
    total = sum(segment["max_doc"] for segment in segments)
    assert abs(sum(s["max_doc"] for s in one) - total / 2) < total / 20
