"""The jobs of a machine in small files, so that its processes know of each other's.

A planner of Spark, a shell and a notebook are processes of their own: what one began another can list and
wait for. The folder belongs to the user alone. Where files cannot be written, a process knows its own jobs
only.
"""

import contextlib
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SUFFIX = ".json"


def folder() -> Path | None:
    """Where the files are; None if this user cannot have such a folder."""
    found = Path(tempfile.gettempdir()).absolute() / f"indextables-jobs-{os.getuid()}"
    try:
        found.mkdir(mode=0o700, exist_ok=True)
        return found if found.stat().st_uid == os.getuid() else None
    except OSError:
        return None


def save(job_id: str, record: dict[str, Any]) -> None:
    """Write what is known of a job; a reader sees all of it or what was there before."""
    home = folder()
    if home is None:
        return
    arriving = home / f"{job_id}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        arriving.write_text(json.dumps(record))
        arriving.replace(home / (job_id + _SUFFIX))


def load(job_id: str) -> dict[str, Any] | None:
    """What is known of a job."""
    home = folder()
    return None if home is None else _read(home / (job_id + _SUFFIX))


def load_all() -> Iterator[dict[str, Any]]:
    """What is known of all jobs of this machine, in no order."""
    home = folder()
    for path in home.glob("*" + _SUFFIX) if home is not None else ():
        if (record := _read(path)) is not None:
            yield record


def remove_older(seconds: float) -> None:
    """Remove files that nothing was written to for so long, of jobs that are over."""
    home = folder()
    for path in home.iterdir() if home is not None else ():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < seconds:
                continue
            record = _read(path)
            if record is None or record["ended"] is not None or not alive(record["owner"], record["born"]):
                path.unlink()


def born(process: int) -> str:
    """When a process was started, as its system counts; empty where that is not told."""
    try:
        # The name of a program, in parentheses, may hold blanks; the fields after it do not.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def alive(process: int, since: str) -> bool:
    """Whether a process still runs, and is the one that was started then."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return born(process) == since


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "born" in found else None
