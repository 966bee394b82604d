"""The proxy of the tests ends cleanly, whatever its clients do at that moment."""

import gc
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.proxy import Fault, proxy


@pytest.fixture
def silent_server() -> Iterator[Any]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield server.getsockname()[1]


# A socket that is left open is a warning, and a warning is an error.
@pytest.mark.parametrize("fault", [None, Fault.HANG_AFTER, Fault.DENIED])
def test_a_proxy_that_ends_while_clients_connect_leaves_nothing_behind(
    silent_server: Any, fault: Any
) -> None:
    def connect(port: int) -> None:
        for _ in range(20):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                    client.sendall(b"GET / HTTP/1.1\r\n\r\n" if fault else b"GET / HT")
                    begun.release()
            except OSError:  # the proxy has ended
                return

    before = threading.active_count()
    for _ in range(5):
        begun = threading.Semaphore(0)
        with proxy(silent_server) as made:
            made.fault = lambda _request: fault
            clients = [threading.Thread(target=connect, args=(made.port,)) for _ in range(4)]
            for client in clients:
                client.start()
            for _ in range(4):
                assert begun.acquire(timeout=30)
        for client in clients:
            client.join(30)
        gc.collect()
        assert threading.active_count() == before
