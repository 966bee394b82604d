"""A read that takes unusually long is requested a second time, and the first answer counts."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from indextables import metrics
from indextables.errors import StoreError
from indextables.options import Options
from indextables.store import Store, open_store, remote
from indextables.store.clients import HedgeBudget
from indextables.store.remote import hedge
from tests.servers.proxy import Fault, Proxy
from tests.servers.s3 import S3Server

LONG = 60.0


class Reads:
    """Reads of which each waits until its own event, then returns or raises."""

    def __init__(self, *results: Any) -> None:
        self.results = results
        self.events = [threading.Event() for _ in results]
        self.started = [threading.Event() for _ in results]
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            number, self.count = self.count, self.count + 1
        self.started[number].set()
        assert self.events[number].wait(LONG)
        result = self.results[number]
        if isinstance(result, Exception):
            raise result
        return result

    def in_thread(self, seconds: float = 0.001) -> Any:
        """The result of the reads, in another thread."""
        found = []

        def run() -> None:
            try:
                found.append(hedge(self, seconds, HedgeBudget()))
            except StoreError as error:
                found.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread, found

    def release(self, *numbers: Any) -> None:
        for number in numbers:
            assert self.started[number].wait(LONG)
            self.events[number].set()


def ended(thread: Any, found: Any) -> Any:
    thread.join(LONG)
    assert not thread.is_alive()
    return found[0]


def test_the_second_read_answers_while_the_first_hangs() -> None:
    reads = Reads("first", "second")
    running = reads.in_thread()
    reads.release(1)
    assert ended(*running) == "second"
    reads.release(0)


def test_the_first_read_may_still_be_faster() -> None:
    reads = Reads("first", "second")
    running = reads.in_thread()
    assert reads.started[1].wait(LONG)
    reads.release(0)
    assert ended(*running) == "first"
    reads.release(1)


def test_an_error_counts_only_if_both_reads_fail() -> None:
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


def test_an_answer_in_time_is_one_read() -> None:
    reads = Reads("only")
    reads.events[0].set()
    assert hedge(reads, LONG, HedgeBudget()) == "only"
    assert reads.count == 1
    failing = Reads(StoreError("no"))
    failing.events[0].set()
    with pytest.raises(StoreError, match="no"):
        hedge(failing, LONG, HedgeBudget())
    assert failing.count == 1


def test_every_read_begins_at_once_however_many_there_are() -> None:
    """The time after which a read counts as slow is none that it waits for a thread."""
    count = 300
    together = threading.Barrier(count)

    def read() -> str:
        together.wait(LONG)
        return "right"

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(hedge(read, 2 * LONG, HedgeBudget())))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONG)
    assert found == ["right"] * count


def test_a_store_that_is_slow_for_every_read_gets_few_of_them_twice() -> None:
    budget, made = HedgeBudget(), []
    for number in range(200):
        both = threading.Event()

        def read(number: Any = number, both: Any = both) -> Any:
            made.append(number)
            if made.count(number) == 2:
                both.set()
            both.wait(0.05)
            return number

        assert hedge(read, 0.001, budget) == number
    twice = len(made) - 200
    assert 0 < twice <= HedgeBudget.MOST + HedgeBudget.SHARE * 200


def test_threads_are_used_again_and_end_when_there_is_nothing_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_IDLE_SECONDS", 0.2)
    threads = remote._DaemonThreads()
    first = {threads.submit(threading.current_thread).result(LONG) for _ in range(20)}
    assert all(thread.daemon for thread in first)
    for thread in first:
        thread.join(LONG)
        assert not thread.is_alive()
    assert threads.submit(lambda: "right").result(LONG) == "right"


def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = remote._DaemonThreads()
    assert threads.submit(lambda: 1).result(LONG) == 1
    os.register_at_fork(after_in_child=threads.reset)
    child = os.fork()
    if not child:
        os._exit(threads.submit(lambda: 7).result(LONG))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.fixture
def patient(moto_server: S3Server, faulty_s3: Proxy) -> Callable[..., Store]:
    """A store whose reads hang for a minute, but are requested again after 200 milliseconds."""

    def make(**options: Any) -> Store:
        given = {**moto_server.options(faulty_s3.port), "cloud.readTimeout": "60000", **options}
        url = f"s3://bucket/hedged-{random.random()}"
        open_store(url, Options.parse(given)).put("x", b"0123456789" * 200_000)
        return open_store(url, Options.parse({"cloud.hedgeAfter": "200", **given}))

    return make


def reads_made_twice() -> float:
    figures = metrics.figures().get(remote.HEDGED)
    return figures.total if figures else 0


@pytest.mark.server
def test_a_request_that_hangs_is_sent_again(patient: Callable[..., Any], faulty_s3: Proxy) -> None:
    store = patient()
    faulty_s3.fail(Fault.HANG_AFTER, 1, methods=("GET",))
    before = reads_made_twice()
    assert store.get_range("x", 0, 10) == b"0123456789"
    assert (faulty_s3.count("GET"), reads_made_twice() - before) == (2, 1)


@pytest.mark.server
def test_large_reads_and_those_of_unknown_size_are_sent_once(
    patient: Callable[..., Any], faulty_s3: Proxy
) -> None:
    store = patient(**{"cloud.readTimeout": "1000"})
    before = reads_made_twice()
    for read in (lambda: store.get("x"), lambda: store.get_range("x", 0, 1_500_000)):
        faulty_s3.fail(Fault.HANG_AFTER, 1, methods=("GET",))
        assert read().startswith(b"0123456789")
    assert reads_made_twice() == before


@pytest.mark.server
def test_what_the_store_refuses_is_repeated_and_does_not_count_as_slow(
    patient: Callable[..., Any], faulty_s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = patient()
    attempts = []

    def counted(read: Any, _seconds: Any, budget: Any) -> Any:
        try:
            return hedge(read, LONG, budget)
        finally:
            attempts.append(faulty_s3.count("GET"))

    monkeypatch.setattr(remote, "hedge", counted)
    faulty_s3.fail(Fault.BUSY, 4, methods=("GET",))
    assert store.get_range("x", 0, 10) == b"0123456789"
    # Only the first attempt may be made twice.
    assert (attempts, faulty_s3.count("GET")) == ([1], 5)


@pytest.mark.server
def test_retries_of_reads_end(patient: Callable[..., Any], faulty_s3: Proxy) -> None:
    for retries in (0, 1, 3):
        store = patient(**{"cloud.maxRetries": str(retries), "cloud.hedgeAfter": "60000"})
        faulty_s3.requests.clear()
        faulty_s3.fail(Fault.BUSY, 100, methods=("GET",))
        with pytest.raises(StoreError, match="503"):
            store.get("x")
        assert faulty_s3.count("GET") == retries + 1
        faulty_s3.fault = lambda _: None


PROGRAM = """
import sys, threading, time
from indextables.store.clients import HedgeBudget
from indextables.store.remote import hedge
first = threading.Event()
def read():
    if not first.is_set():
        first.set()
        time.sleep(600)
    return "right"
print(hedge(read, 0.01, HedgeBudget()))
"""


def test_the_end_of_the_process_does_not_wait_for_the_slower_request() -> None:
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.stderr) == ("right\n", "")
