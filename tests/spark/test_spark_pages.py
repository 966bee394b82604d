"""What the pages show of Spark is true: their examples run in a session."""

import re
from pathlib import Path

import pytest

import indextables

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/spark.md"])
def test_examples_run(spark, page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spark.sql("DROP TABLE IF EXISTS logs")
    blocks = re.findall(r"^```py\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    if page == "README.md":
        indextables.write("logs", [{"message": "a timeout"}], options={"indexing.typemap.message": "text"})
        blocks = [block.replace('load("logs")', f'load("{tmp_path}/logs")') for block in blocks]
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    spark.sql("DROP TABLE IF EXISTS logs")
    assert {"README.md": "a timeout", "docs/spark.md": "connection to pay"}[page] in capsys.readouterr().out
