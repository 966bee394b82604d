"""An HTTP proxy in front of a server: it remembers requests, rewrites them, and fails them on demand."""

import asyncio
import contextlib
import re
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


_REPLIES = {
    Fault.ERROR_AFTER: (500, "InternalError"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.BUSY: (503, "SlowDown"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.DENIED: (403, "AccessDenied"),
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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            request = Request(head, await reader.readexactly(int(length[1]) if length else 0))
            self.requests.append(request)
            await self._reply(request, writer)
            await writer.drain()

    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        fault = self.fault(request)
        answer = await self._forward(self.rewrite(request)) if fault is None or fault in _FORWARDED else b""
        if fault is None:
            writer.write(self.answer(request, answer))
        elif fault is Fault.HANG_AFTER:
            await asyncio.sleep(30)
        elif fault is Fault.CUT_BODY:
            writer.write(answer[: len(answer) - len(answer) // 2])
        elif fault in _REPLIES:
            status, code = _REPLIES[fault]
            body = f"<Error><Code>{code}</Code></Error>".encode()
            head = f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)

    async def _forward(self, request: Request) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        head = request.without("connection").head
        writer.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1) + request.body)
        await writer.drain()
        answer = await reader.read(-1)
        writer.close()
        return answer


@contextlib.contextmanager
def proxy(
    upstream: int,
    rewrite: Rewrite = lambda request: request,
    answer: Answer = lambda _request, answer: answer,
) -> Iterator[Proxy]:
    """Run a proxy in a thread of this process."""
    made = Proxy(upstream, rewrite, answer)
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 26)
        made.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(0.01)  # closed transports let go of their sockets

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


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
