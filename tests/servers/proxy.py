"""An HTTP proxy in front of a server: it remembers requests, rewrites them, and fails them on demand."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What can go wrong with a request."""

    ERROR_AFTER = "the server did it, and answers 500"
    DROP_AFTER = "the server did it, and the connection breaks"
    HANG_AFTER = "the server did it, and no answer comes"
    CONFLICT = "409, and nothing done"
    BUSY = "503, and nothing done"
    TOO_MANY = "429, and nothing done"
    DROP_BEFORE = "the connection breaks, and nothing done"
    CUT_BODY = "the answer ends half way"
    DENIED = "403, and nothing done"
    NO_OBJECT = "404, no such object"
    NO_BUCKET = "404, no such bucket"


_REPLIES = {
    Fault.ERROR_AFTER: (500, "InternalError"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.BUSY: (503, "SlowDown"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.DENIED: (403, "AccessDenied"),
    Fault.NO_OBJECT: (404, "NoSuchKey"),
    Fault.NO_BUCKET: (404, "NoSuchBucket"),
}
_FORWARDED = {Fault.ERROR_AFTER, Fault.DROP_AFTER, Fault.HANG_AFTER, Fault.CUT_BODY}


@dataclass
class Request:
    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    def header(self, name: str) -> str | None:
        found = re.search(rf"(?im)^{re.escape(name)}: *(.*?)\r$".encode(), self.head)
        return found[1].decode() if found else None

    def without(self, name: str) -> "Request":
        return Request(re.sub(rf"(?im)^{re.escape(name)}:.*\r\n".encode(), b"", self.head), self.body)


Rewrite = Callable[[Request], Request]
Answer = Callable[[Request, bytes], bytes]


@dataclass
class Proxy:
    """Set `fault` to choose, for each request, how it fails."""

    upstream: int
    rewrite: Rewrite = lambda request: request
    answer: Answer = lambda _request, answer: answer
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], Fault | None] = lambda _request: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _sockets: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)

    def fail(self, fault: Fault, times: int, *, methods: tuple[str, ...] = ("PUT",)) -> None:
        """Fail the next so many requests of these methods."""
        left = [times]

        def choose(request: Request) -> Fault | None:
            if left[0] and request.method in methods:
                left[0] -= 1
                return fault
            return None

        self.fault = choose

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    @contextlib.contextmanager
    def running(self) -> Iterator["Proxy"]:
        """Serve until the block ends; afterwards no thread and no socket is left."""
        with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
            self.port = server.getsockname()[1]
            acceptor = threading.Thread(target=self._accept, args=(server,), name="proxy")
            acceptor.start()
            try:
                yield self
            finally:
                with self._lock:
                    self._stopped.set()
                    for connection in self._sockets:
                        _shut_down(connection)
                _shut_down(server)  # wakes the acceptor
                acceptor.join()
                for thread in self._threads:
                    thread.join()

    def _accept(self, server: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = server.accept()
            except OSError:  # shut down
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="proxied")
            self._threads.append(thread)
            thread.start()

    @contextlib.contextmanager
    def _open(self, connection: socket.socket) -> Iterator[socket.socket]:
        """A connection that ends, at the latest, when the proxy does."""
        with connection:
            with self._lock:
                self._sockets.add(connection)
                if self._stopped.is_set():
                    _shut_down(connection)
            try:
                yield connection
            finally:
                with self._lock:
                    self._sockets.discard(connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), self._open(connection):
            request = _read_request(connection)
            self.requests.append(request)
            connection.sendall(self._reply(request))

    def _reply(self, request: Request) -> bytes:
        fault = self.fault(request)
        answer = self._forward(self.rewrite(request)) if fault is None or fault in _FORWARDED else b""
        if fault is None:
            return self.answer(request, answer)
        if fault is Fault.HANG_AFTER:
            self._stopped.wait(30)
        if fault is Fault.CUT_BODY:
            return answer[: len(answer) - len(answer) // 2]
        if fault in _REPLIES:
            status, code = _REPLIES[fault]
            body = f"<Error><Code>{code}</Code></Error>".encode()
            head = f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            return head.encode() + (body if request.method != "HEAD" else b"")
        return b""

    def _forward(self, request: Request) -> bytes:
        head = request.without("connection").head
        head = head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        with self._open(socket.create_connection(("127.0.0.1", self.upstream), timeout=60)) as upstream:
            upstream.sendall(head + request.body)
            return b"".join(iter(lambda: upstream.recv(1 << 16), b""))


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was never connected, or is no longer
        connection.shutdown(socket.SHUT_RDWR)


def _read_request(connection: socket.socket) -> Request:
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _some(connection)
    head = bytes(data[: end + 4])
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    size = int(length[1]) if length else 0
    body = data[end + 4 :]
    while len(body) < size:
        body += _some(connection)
    return Request(head, bytes(body[:size]))


def _some(connection: socket.socket) -> bytes:
    if not (data := connection.recv(1 << 20)):
        raise EOFError
    return data


def proxy(
    upstream: int,
    rewrite: Rewrite = lambda request: request,
    answer: Answer = lambda _request, answer: answer,
) -> contextlib.AbstractContextManager[Proxy]:
    """Run a proxy in threads of this process."""
    return Proxy(upstream, rewrite, answer).running()


def ignore_conditions(request: Request) -> Request:
    """What some S3-compatible servers do: they overwrite although they were asked to create."""
    return request.without("if-none-match")


def small_pages(request: Request) -> Request:
    """Listings of ten objects a page."""
    head = re.sub(rb"^(GET [^ ]*list-type=2[^ ]*)", rb"\1&max-keys=10", request.head)
    return Request(head, request.body)


def google_to_s3(request: Request) -> Request:
    """Google's XML protocol, in the words of an S3 server that checks no signatures."""
    head = request.without("authorization").head
    head = re.sub(rb"(?im)^x-goog-if-generation-match: *0\r\n", b"If-None-Match: *\r\n", head)
    head = re.sub(rb"(?im)^x-goog-", b"x-amz-", head)
    signed = (
        b"\r\nAuthorization: AWS4-HMAC-SHA256 Credential=testkey/20200101/us-east-1/s3/aws4_request, "
        b"SignedHeaders=host, Signature=0\r\n\r\n"
    )
    return Request(head.replace(b"\r\n\r\n", signed, 1), request.body)


def s3_to_google(_request: Request, answer: bytes) -> bytes:
    """Answers of Google carry a generation."""
    return answer.replace(b"\r\n", b"\r\nx-goog-generation: 1\r\n", 1)
