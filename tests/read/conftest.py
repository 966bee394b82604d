"""Tables of these tests are small; their indexes are cut into fields all the same, as those of large splits are."""

from collections.abc import Iterator

import pytest

from indextables.split.index import files


@pytest.fixture(scope="module", autouse=True)
def every_field_apart() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "PIECE_BYTES", 1)
        yield
