"""Processes are killed at random times while storage fails: what was acknowledged is there, once.

Real processes, real splits, real servers. Each writer has a partition of its own, so that what it was told
determines what its partition may hold. The simulator (`tests/simulation`) checks more, at every call.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import indextables
from indextables.log.snapshot_cache import invalidate
from indextables.log.transaction_log import TransactionLog
from indextables.options import Options
from indextables.store import open_store
from tests import ROOT
from tests.log_tables.model import Model, lines_of
from tests.race.killed_worker import PARTITION
from tests.servers import azure, s3
from tests.servers.azure import AzureServer
from tests.servers.proxy import Fault, Proxy, Request, proxy
from tests.servers.s3 import S3Server

SECONDS = 10
SOAK_SECONDS = int(os.environ.get("INDEXTABLES_SOAK_SECONDS", "1800"))
_FAULTS = (
    Fault.BUSY,
    Fault.DROP_BEFORE,
    Fault.DROP_AFTER,
    Fault.ERROR_AFTER,
    Fault.CUT_BODY,
    Fault.TOO_MANY,
    Fault.DENIED,
)
_SETTINGS = {
    "checkpoint.interval": "5",
    "transaction.retry.maxAttempts": "20",
    "transaction.retry.baseDelayMs": "5",
    "transaction.retry.maxDelayMs": "100",
    "cloud.maxRetries": "2",
    "cloud.readTimeout": "5000",
}
_TEAM = (("write", "w0"), ("write", "w1"), ("maintain", "m0"), ("read", "r0"))


@dataclass
class Team:
    """Processes of ours, each started again after it was killed."""

    url: str
    options: dict[str, str]
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0

    def start(self, role: str, who: str) -> None:
        arguments = [role, who, self.url, json.dumps(self.options), str(self.notes(who))]
        with (self.folder / f"{who}.errors").open("ab") as errors:
            self.running[who] = subprocess.Popen(
                [sys.executable, "-m", "tests.race.killed_worker", *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )

    def kill(self, who: str) -> None:
        child = self.running.pop(who)
        assert child.poll() is None, self.errors(who)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        self.kills += 1

    def notes(self, who: str) -> Path:
        return self.folder / f"{who}.notes"

    def wait_for(self, who: str, event: str) -> None:
        """Wait until a process notes an event, however slow the machine is: the test's timeout is the limit."""
        while not any(note.get("event") == event for note in read_notes(self, who)):
            assert self.running[who].poll() is None, self.errors(who)
            time.sleep(0.05)

    def errors(self, who: str) -> str:
        return f"{who} ended: {(self.folder / f'{who}.errors').read_text()[-3000:]}"


@contextmanager
def at_work(team: Team) -> Iterator[Team]:
    try:
        yield team
    finally:
        for child in team.running.values():
            child.kill()
            child.wait()


def with_faults(made: Proxy, dice: random.Random, rate: float) -> None:
    def choose(request: Request) -> Fault | None:
        return dice.choice(_FAULTS) if dice.random() < rate else None

    made.fault = choose


def kill_for(team: Team, seconds: float, dice: random.Random) -> None:
    for role, who in _TEAM:
        team.start(role, who)
    for who in ("w0", "w1", "r0"):
        team.wait_for(who, "done")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.5, 3))
        role, who = dice.choice(_TEAM)
        team.kill(who)
        team.start(role, who)
    for who in list(team.running):
        team.kill(who)


def read_notes(team: Team, who: str) -> list[dict[str, Any]]:
    path = team.notes(who)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def check_rows(team: Team, found: list[str]) -> int:
    """Each acknowledged row is there once, unless a later overwrite took it; no refused one is there."""
    assert len(set(found)) == len(found), "a row is there twice"
    there, acknowledged = set(found), 0
    for _, who in _TEAM[:2]:
        must: set[str] = set()
        may: set[str] = set()
        written = [note for note in read_notes(team, who) if "row" in note]
        ends = {note["row"]: note["event"] for note in written if note["event"] != "begins"}
        for note in (note for note in written if note["event"] == "begins"):
            row, told = note["row"], ends.get(note["row"], "killed")
            assert not told.startswith("corrupt"), told
            if told == "done":
                acknowledged += 1
                must, may = ({row}, set(may)) if note["replaces"] else (must | {row}, may)
            elif told in ("unknown", "killed"):
                may = may | {row} | (must if note["replaces"] else set())
                must = set() if note["replaces"] else must
        own = {row for row in there if row.startswith(f"{who}-")}
        assert must <= own, f"{who}: acknowledged rows are lost: {sorted(must - own)}"
        assert own <= must | may, f"{who}: rows that nobody acknowledged: {sorted(own - must - may)}"
    return acknowledged


def check_log(url: str, options: dict[str, str]) -> None:
    """Each version that can be read follows from the one before it."""
    log = TransactionLog(open_store(url, Options.parse(options)), Options.parse(options), engine="check")
    folder = log.store.at("_transaction_log")
    previous: tuple[int, dict[str, int]] | None = None
    for version in log.reachable():
        listed = log.snapshot(version=version).files()
        live = dict(zip(listed["path"].to_pylist(), listed["size"].to_pylist(), strict=True))
        if previous is not None and previous[0] == version - 1 and folder.exists(f"{version:020d}.json"):
            model = Model()
            model.live = dict(previous[1])
            model.apply(lines_of(folder.get(f"{version:020d}.json")))
            assert live == model.live, f"version {version} differs from replay"
        previous = version, live


def check_killed(server: s3.S3Server | azure.AzureServer, url: str, folder: Path, seconds: float) -> None:
    dice = random.Random()
    with proxy(server.port) as between:
        options = {**_SETTINGS, **server.options(between.port)}
        rows = [{"id": "first", PARTITION: "first"}]
        indextables.write(url, rows, partition_by=[PARTITION], options=options)
        with_faults(between, dice, 0.02)
        with at_work(Team(url, options, folder)) as team:
            kill_for(team, seconds, dice)
    # What was under way through the proxy ended with it; the server itself is well.
    invalidate()
    options = {**_SETTINGS, **server.options()}
    found = indextables.open(url, options=options).scan(["id"])["id"].to_pylist()
    assert "first" in found
    acknowledged = check_rows(team, found)
    check_log(url, options)
    problems = [note["problem"] for note in read_notes(team, "r0") if "problem" in note]
    problems += [
        note["event"]
        for who in ("r0", "m0")
        for note in read_notes(team, who)
        if "corrupt" in note.get("event", "")
    ]
    assert not problems, problems
    reads = sum(note["event"] == "done" for note in read_notes(team, "r0"))
    print(f"{team.kills} kills, {acknowledged} acknowledged writes, {reads} reads")  # noqa: T201
    assert acknowledged, "nothing was written: the run shows nothing"
    assert reads, "nothing was read: the run shows nothing"


@pytest.mark.server
def test_killed_processes_lose_nothing_on_an_s3_server(seaweed_server: S3Server, tmp_path: Path) -> None:
    check_killed(seaweed_server, f"s3://{s3.BUCKET}/{tmp_path.name}/table", tmp_path, SECONDS)


@pytest.mark.server
def test_killed_processes_lose_nothing_on_azurite(azurite_server: AzureServer, tmp_path: Path) -> None:
    check_killed(azurite_server, f"az://{azure.CONTAINER}/{tmp_path.name}/table", tmp_path, SECONDS)


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(0)
def test_killed_processes_lose_nothing_on_an_s3_server_for_as_long_as_asked(
    seaweed_server: S3Server, tmp_path: Path
) -> None:
    check_killed(seaweed_server, f"s3://{s3.BUCKET}/{tmp_path.name}/table", tmp_path, SOAK_SECONDS)


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(0)
def test_killed_processes_lose_nothing_on_azurite_for_as_long_as_asked(
    azurite_server: AzureServer, tmp_path: Path
) -> None:
    check_killed(azurite_server, f"az://{azure.CONTAINER}/{tmp_path.name}/table", tmp_path, SOAK_SECONDS)
