"""Drivers of streams are killed at random times and start again: nothing is lost, nothing is doubled."""

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import indextables
from tests import ROOT
from tests.servers.s3 import BUCKET, S3Server

pytestmark = pytest.mark.spark
SEED = int(os.environ.get("INDEXTABLES_SEED", "16"))
# So many files arrive before each round; a micro-batch reads one.
FILES = 4
ROWS = 3


class Arrivals:
    """Files that arrive, and the rows in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.rows: list[dict[str, Any]] = []

    def add(self, files: int) -> None:
        for _ in range(files):
            first = len(self.rows)
            new = [
                {"id": n, "text": "red line" if n % 3 else "blue line"} for n in range(first, first + ROWS)
            ]
            part = self.folder / f".{first:06}.json"
            part.write_text("\n".join(map(json.dumps, new)))
            part.rename(self.folder / f"{first:06}.json")
            self.rows += new


def start(home: Path, url: str, options: dict[str, str], *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.race.killed_stream", str(home), url, json.dumps(options), *more]
    with (home / "driver.log").open("a") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )


def kill(driver: "subprocess.Popen[str]") -> None:
    """The driver and its JVM; Python workers notice it by themselves, perhaps after they have committed."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()


def check(home: Path, url: str, options: dict[str, str], rounds: int) -> None:
    dice = random.Random(SEED)
    arrivals = Arrivals(home / "input")
    # The table exists before the stream that reads it starts.
    empty = [{"id": -1, "text": "first line"}]
    indextables.write(f"{url}/lines", empty, options={**options, "indexing.typemap.text": "text"})
    for _ in range(rounds):
        arrivals.add(FILES)
        driver = start(home, url, options)
        try:
            assert driver.stdout.readline() == "running\n", (home / "driver.log").read_text()[-3000:]
            # Any moment will do: in a batch, a commit, a checkpoint, a merge, or when all is done.
            time.sleep(dice.uniform(0.5, 8))
            assert driver.poll() is None, (home / "driver.log").read_text()[-3000:]
        finally:
            kill(driver)
    last = start(home, url, options, "finish")
    try:
        assert last.wait(600) == 0, (home / "driver.log").read_text()[-3000:]
    finally:
        kill(last) if last.poll() is None else last.stdout.close()
    lines = indextables.open(f"{url}/lines", options=options)
    found = [(row["id"], row["text"]) for row in lines.scan().to_pylist()]
    expected = [(row["id"], row["text"]) for row in (*empty, *arrivals.rows)]
    assert Counter(found) == Counter(expected)
    red = indextables.open(f"{url}/red", options=options).scan()["id"].to_pylist()
    assert Counter(red) == Counter(row["id"] for row in arrivals.rows if "red" in row["text"])
    counts = indextables.open(f"{url}/counts", options=options).scan().to_pylist()
    assert {row["text"]: row["count"] for row in counts} == Counter(text for _, text in expected)


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(0)])])
def test_on_the_local_disk(tmp_path: Path, rounds: int) -> None:
    check(tmp_path, str(tmp_path), {}, rounds)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.server
def test_on_s3(tmp_path: Path, moto_server: S3Server) -> None:
    check(tmp_path, f"s3://{BUCKET}/streams-{secrets.token_hex(4)}", moto_server.options(), 50)
