"""Every call of the file system that concerns a folder, counted, and one of them failing.

Only Python's own calls are seen; that is all there are below a table on the local disk, but for mapped splits,
whose opening is seen.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest


class Fault(StrEnum):
    """How a call fails."""

    BEFORE = "an error, and nothing done"
    AFTER = "done, and then an error"
    NO_SPACE = "the disk is full"
    SHORT = "half of the bytes are taken, and no error"
    SHORT_THEN_FULL = "half of the bytes are taken, and then the disk is full"


# What a call changes tells in which ways it can fail.
_WRITES = (Fault.BEFORE, Fault.NO_SPACE, Fault.AFTER, Fault.SHORT, Fault.SHORT_THEN_FULL)
_CHANGES = (Fault.BEFORE, Fault.AFTER)
_READS = (Fault.BEFORE,)
FAULTS = {
    "open to read": _READS,
    "open folder": _READS,
    "create": (Fault.BEFORE, Fault.NO_SPACE, Fault.AFTER),
    "write": _WRITES,
    "read": _READS,
    "fsync": _CHANGES,
    "close": (Fault.AFTER,),
    "link": _CHANGES,
    "rename": _CHANGES,
    "unlink": _CHANGES,
    "mkdir": _CHANGES,
    "rmdir": _CHANGES,
    "scandir": _READS,
    "stat": _READS,
}


@dataclass
class DiskCalls:
    """Counts calls below `folder`; the one numbered `failing` fails as `fault` says."""

    folder: str
    failing: int | None = None
    fault: Fault = Fault.BEFORE
    seen: list[tuple[str, str]] = field(default_factory=list)
    failed: tuple[str, str] | None = None

    def concerns(self, where: object) -> bool:
        """Whether a path or a descriptor is below the folder."""
        if isinstance(where, int):
            try:
                where = Path(f"/proc/self/fd/{where}").readlink()
            except OSError:
                return False
        path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else ""
        return isinstance(path, str) and (path == self.folder or path.startswith(self.folder + "/"))

    def call(
        self, kind: str, where: object, real: Callable[[], Any], some: Callable[[], Any] | None = None
    ) -> Any:
        """Make a call, or fail it; `some` makes half of it."""
        if not self.concerns(where):
            return real()
        number = len(self.seen)
        self.seen.append((kind, str(where)))
        if number != self.failing:
            return real()
        # Threads may make their calls in another order than when these were counted.
        fault = self.fault if self.fault in FAULTS[kind] else FAULTS[kind][0]
        self.failed = (kind, str(where))
        if fault is Fault.SHORT and some is not None:
            return some()
        if fault is Fault.SHORT_THEN_FULL and some is not None:
            self.failing, self.fault = number + 1, Fault.NO_SPACE
            return some()
        if fault is Fault.AFTER:
            _release(kind, real())
        wrong = errno.ENOSPC if fault is Fault.NO_SPACE else errno.EIO
        raise OSError(wrong, os.strerror(wrong))

    @contextmanager
    def watching(self) -> Iterator["DiskCalls"]:
        """Count and fail while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            for name, kind in (
                ("unlink", "unlink"),
                ("mkdir", "mkdir"),
                ("rmdir", "rmdir"),
                ("scandir", "scandir"),
                ("fsync", "fsync"),
                ("stat", "stat"),
                ("lstat", "stat"),
            ):
                patch.setattr(os, name, self._of_one(getattr(os, name), kind))
            for name, kind in (("link", "link"), ("rename", "rename"), ("replace", "rename")):
                patch.setattr(os, name, self._of_two(getattr(os, name), kind))
            patch.setattr(os, "pread", self._pread(os.pread))
            patch.setattr(os, "open", self._os_open(os.open))
            patch.setattr(builtins, "open", self._open(builtins.open))
            patch.setattr(io, "open", builtins.open)
            yield self

    def _of_one(self, real: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def called(where: object = ".", *args: object, **more: object) -> object:
            return self.call(kind, where, lambda: real(where, *args, **more))

        return called

    def _of_two(self, real: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def called(source: object, target: object, **more: object) -> object:
            return self.call(kind, target, lambda: real(source, target, **more))

        return called

    def _pread(self, real: Callable[..., bytes]) -> Callable[..., bytes]:
        def called(descriptor: int, size: int, start: int) -> bytes:
            result: bytes = self.call("read", descriptor, lambda: real(descriptor, size, start))
            return result

        return called

    def _os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def called(path: object, flags: int, *args: object, **more: object) -> int:
            kind = "create" if flags & os.O_CREAT else "open folder"
            result: int = self.call(kind, path, lambda: real(path, flags, *args, **more))
            return result

        return called

    def _open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: object, mode: str = "r", *args: Any, **more: Any) -> object:
            if not self.concerns(path):
                return real(path, mode, *args, **more)
            kind = "create" if set(mode) & set("wxa") else "open to read"
            if more.get("buffering") == 0:
                return self.call(kind, path, lambda: _File(self, os.fspath(path), mode))  # type: ignore[call-overload]
            return self.call(kind, path, lambda: real(path, mode, *args, **more))

        return called


def _release(kind: str, made: Any) -> None:
    """Close what a call has opened, since its caller never sees it."""
    if isinstance(made, _File):
        io.FileIO.close(made)
    elif isinstance(made, int) and kind in ("create", "open folder"):
        os.close(made)
    elif hasattr(made, "close"):
        made.close()


class _File(io.FileIO):
    """A file whose reads, writes and closing are seen."""

    def __init__(self, calls: DiskCalls, path: str, mode: str) -> None:
        super().__init__(path, mode)
        self._calls = calls
        self._path = path

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        half = view[: max(1, len(view) // 2)]
        written: int = self._calls.call(
            "write",
            self._path,
            lambda: super(_File, self).write(view),
            lambda: super(_File, self).write(half),
        )
        return written

    def read(self, size: int | None = -1, /) -> bytes:
        data: bytes = self._calls.call(
            "read", self._path, lambda: super(_File, self).read(-1 if size is None else size)
        )
        return data

    def close(self) -> None:
        if self.closed:
            return
        self._calls.call("close", self._path, super().close)


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, for the story of a failure."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
