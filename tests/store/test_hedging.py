"""A read that takes unusually long is requested a second time, and the first answer counts."""

import random
import threading

import pytest

from indextables.errors import StoreError
from indextables.options import Options
from indextables.store import open_store
from indextables.store.remote import hedged
from tests.servers.proxy import Fault

LONG = 60.0


class Reads:
    """Reads of which each waits until its own event, then returns or raises."""

    def __init__(self, *results):
        self.results = results
        self.events = [threading.Event() for _ in results]
        self.started = [threading.Event() for _ in results]
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            number, self.count = self.count, self.count + 1
        self.started[number].set()
        assert self.events[number].wait(LONG)
        result = self.results[number]
        if isinstance(result, Exception):
            raise result
        return result

    def in_thread(self, seconds=0.001):
        """The result of the reads, in another thread."""
        found = []

        def run():
            try:
                found.append(hedged(self, seconds))
            except StoreError as error:
                found.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread, found

    def release(self, *numbers):
        for number in numbers:
            assert self.started[number].wait(LONG)
            self.events[number].set()


def ended(thread, found):
    thread.join(LONG)
    assert not thread.is_alive()
    return found[0]


def test_the_second_read_answers_while_the_first_hangs():
    reads = Reads("first", "second")
    running = reads.in_thread()
    reads.release(1)
    assert ended(*running) == "second"
    reads.release(0)


def test_the_first_read_may_still_be_faster():
    reads = Reads("first", "second")
    running = reads.in_thread()
    assert reads.started[1].wait(LONG)
    reads.release(0)
    assert ended(*running) == "first"
    reads.release(1)


def test_an_error_counts_only_if_both_reads_fail():
    for failing, other in ((0, 1), (1, 0)):
        results: list[object] = ["right", "right"]
        results[failing] = StoreError("no")
        reads = Reads(*results)
        running = reads.in_thread()
        assert reads.started[1].wait(LONG)
        reads.release(failing)
        reads.release(other)
        assert ended(*running) == "right"
    reads = Reads(StoreError("one"), StoreError("other"))
    running = reads.in_thread()
    assert reads.started[1].wait(LONG)  # a first read that fails at once is not made a second time
    reads.release(0, 1)
    assert ended(*running) in ("one", "other")


def test_an_answer_in_time_is_one_read():
    reads = Reads("only")
    reads.events[0].set()
    assert hedged(reads, LONG) == "only"
    assert reads.count == 1
    failing = Reads(StoreError("no"))
    failing.events[0].set()
    with pytest.raises(StoreError, match="no"):
        hedged(failing, LONG)
    assert failing.count == 1


@pytest.mark.server
def test_a_request_that_hangs_is_sent_again(moto_server, faulty_s3):
    options = {**moto_server.options(faulty_s3.port), "cloud.readTimeout": "60000"}
    url = f"s3://bucket/hedged-{random.random()}"
    open_store(url, Options.parse(options)).put("x", b"0123456789")
    store = open_store(url, Options.parse({**options, "cloud.hedgeAfter": "200"}))
    for read in (lambda: store.get("x"), lambda: store.get_range("x", 0, 10)):
        faulty_s3.fail(Fault.HANG_AFTER, 1, methods=("GET",))
        before = faulty_s3.count("GET")
        assert read() == b"0123456789"
        assert faulty_s3.count("GET") >= before + 2
