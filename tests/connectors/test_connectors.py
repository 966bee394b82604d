"""indextables and a lake connector in one session."""

import pytest


@pytest.mark.parametrize("order", ["connector first", "indextables first"])
def test_both_extensions_work_in_one_session(run_session, order):
    run_session(order)
