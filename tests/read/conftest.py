"""Tables of these tests are small; their indexes are cut into fields all the same, as those of large splits are."""

import os
import random
from collections.abc import Iterator

import pytest

from indextables.split.index import files


@pytest.fixture(scope="module", autouse=True)
def every_field_apart() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "PIECE_BYTES", 1)
        yield


@pytest.fixture
def seed() -> int:
    """A new random seed in every run (or the one of INDEXTABLES_TEST_SEED); pytest shows it on failure."""
    given = os.environ.get("INDEXTABLES_TEST_SEED")
    chosen = int(given) if given else random.SystemRandom().getrandbits(32)
    print(f"INDEXTABLES_TEST_SEED={chosen}")  # noqa: T201 - captured, shown only when the test fails
    return chosen
