"""Spark Connect with a client in an environment of its own: another Python, no JVM, no indextables."""

import os
import sys
from pathlib import Path

import pytest

from tests.spark.script_runner import run_script

pytestmark = pytest.mark.connectors


def test_a_client_on_another_python_writes_searches_and_runs_commands(tmp_path: Path) -> None:
    assert os.environ.get("INDEXTABLES_CONNECT_CLIENT"), "make matrix sets it to the Python of the client"
    client = run_script("connect_session", tmp_path, SPARK_CONNECT_MODE_ENABLED="1")["client"]
    assert client.pop("python") != "{}.{}".format(*sys.version_info)
    assert client == {
        "has a JVM": False,
        "has indextables": False,
        "search": [3],
        "sql": [3, 4],
        "command": 2,
        "pandas": [2],
    }
