"""A proxy that makes an S3 server seem as far away as a real one: it delays requests and limits bandwidth.

It counts what goes through it. Two requests are one round trip if the second began before the first had
ended; so the number of round trips is that of the longest chain of requests, each begun after the one before.
"""

import asyncio
import contextlib
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

_CHUNK = 256 << 10
RESET = "/_reset"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went through the proxy: the number of requests, their bytes, and the round trips."""

    requests: int
    bytes: int
    round_trips: int

    @property
    def megabytes(self) -> float:
        """The bytes in millions."""
        return self.bytes / 1e6

    def __str__(self) -> str:
        return f"{self.requests:,} requests, {self.round_trips} round trips, {self.megabytes:,.1f} MB"


class SlowProxy:
    """Delays each request by 20 to 50 ms and sends at most 100 MB/s through each connection."""

    def __init__(
        self, upstream: int, *, delay_ms: tuple[float, float] = (20, 50), bytes_per_second: float = 100e6
    ) -> None:
        self.port = 0
        self._upstream = upstream
        self._delay_ms = delay_ms
        self._rate = bytes_per_second
        self._random = random.Random(17)
        self._records: list[tuple[float, float, int]] = []

    def traffic(self) -> Traffic:
        """What went through since the last reset."""
        records = sorted(self._records)
        chains: list[tuple[float, int]] = []  # the end of a request, and the length of its chain
        for begin, end, _ in records:
            before = max((length for ended, length in chains if ended <= begin), default=0)
            chains.append((end, before + 1))
        longest = max((length for _, length in chains), default=0)
        return Traffic(len(records), sum(size for _, _, size in records), longest)

    def delays_ms(self, most: int) -> list[float]:
        """How long the last requests took that were answered with few bytes; at most so many."""
        small = [end - begin for begin, end, size in self._records if size < _CHUNK]
        return [round(seconds * 1000, 1) for seconds in small[-most:]]

    @contextlib.contextmanager
    def running(self) -> Iterator["SlowProxy"]:
        """Serve in a thread until the block ends."""
        started = threading.Event()
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await stop.wait()
            server.close()

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(serve())
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

        thread = threading.Thread(target=run, name="slow-proxy")
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head) or 0)
                target = head.split(b" ", 2)[1].decode()
                if target == RESET:
                    self._records.clear()
                    writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
                    continue
                begin = time.monotonic()
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self._upstream, limit=1 << 20)
                await asyncio.sleep(self._random.uniform(*self._delay_ms) / 1000)
                upstream[1].write(head + body)
                size = await self._relay(head, upstream[0], writer)
                self._records.append((begin, time.monotonic(), size + len(body)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, upstream[1] if upstream else None):
                if each is not None:
                    each.close()

    async def _relay(self, request: bytes, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> int:
        """Pass an answer on, not faster than the bandwidth; returns the size of its body."""
        head = await source.readuntil(b"\r\n\r\n")
        target.write(head)
        if request.startswith(b"HEAD ") or head.split(b" ", 2)[1] in (b"204", b"304"):
            return 0
        size = 0
        if (length := _length(head)) is not None:
            while size < length:
                part = await source.read(min(_CHUNK, length - size))
                if not part:
                    raise ConnectionResetError
                size += len(part)
                await self._send(part, target)
            return size
        while True:  # chunks
            line = await source.readline()
            count = int(line, 16)
            part = await source.readexactly(count + 2)
            size += count
            target.write(line)
            await self._send(part, target)
            if not count:
                return size

    async def _send(self, part: bytes, target: asyncio.StreamWriter) -> None:
        target.write(part)
        await target.drain()
        if len(part) >= _CHUNK // 4:
            await asyncio.sleep(len(part) / self._rate)


def _length(head: bytes) -> int | None:
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    return int(found[1]) if found else None
