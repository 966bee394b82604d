"""The page about a table's health: its figures and its advice."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.cli.main import main
from indextables.report import advice_for, report_page, table_health
from tests.maintenance_tables import aged, appended, orphan


class Checked(HTMLParser):
    """Every element that is opened is closed; nothing comes from elsewhere."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: Any, attrs: Any) -> None:
        assert not any(name in ("src", "href") for name, _ in attrs), (tag, attrs)
        assert tag not in ("script", "link", "img", "iframe")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: Any, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: Any) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: Any) -> None:
        self.text.append(data)


@pytest.fixture
def worn(tmp_path: Path) -> it.Table:
    """A table that wants some care."""
    for _ in range(3):
        appended(tmp_path / "t", 4, **{"checkpoint.enabled": False})
    table = it.open(tmp_path / "t", options={"cache.disk.path": str(tmp_path / "cache")})
    table.drop_partitions("day = 3")
    orphan(tmp_path / "t")
    return table.refresh()


def test_figures_are_those_of_the_table(worn: it.Table) -> None:
    health = table_health(worn)
    assert (health.rows, health.splits, health.version, health.partitions) == (27, 9, 13, 3)
    assert health.bytes == sum(worn.files()["size"].to_pylist())
    assert sum(bar.value for bar in health.by_size) == 9
    assert sum(bar.value for bar in health.by_partition) == health.bytes
    assert [point.version for point in health.growth] == list(range(14))
    assert (health.growth[0].bytes, health.growth[0].splits) == (0, 0)
    assert (health.growth[12].splits, health.growth[13].splits) == (12, 9)
    assert (health.orphans.orphans_found, health.mergeable) == (1, 9)


def test_advice_names_what_is_wrong_and_what_mends_it(worn: it.Table) -> None:
    commands = [a.command.split()[1] for a in advice_for(table_health(worn))]
    assert commands == ["merge", "checkpoint", "purge"]
    for advice in advice_for(table_health(worn)):
        assert main([*advice.command.split()[1:], "--json"]) == 0
    assert list(advice_for(table_health(worn.refresh()))) == []


def test_the_page_is_whole_and_needs_nothing_else(worn: it.Table) -> None:
    page = report_page(worn)
    checked = Checked()
    checked.feed(page)
    assert checked.open == []
    text = " ".join(checked.text)
    for said in (
        "What to do next",
        "Growth over versions",
        "Splits by size",
        "Partitions by day",
        "tombstones",
        "indextables merge",
        "DROP PARTITIONS",
    ):
        assert said in text
    assert not re.search(r"https?://", page)


def test_names_are_escaped(tmp_path: Path) -> None:
    it.write(tmp_path / "t", [{"kind": "<script>alert(1)</script>", "id": 1}], partition_by=["kind"])
    page = report_page(it.open(tmp_path / "t"))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_an_empty_table_and_a_good_one_have_a_page_too(tmp_path: Path) -> None:
    appended(tmp_path, 1)
    aged(tmp_path, 1)
    assert "the table is in good shape" in report_page(it.open(tmp_path))
    it.open(tmp_path).drop_partitions("day = 0")
    assert "There is nothing to show." in report_page(it.open(tmp_path))


def test_the_program_writes_the_page(
    worn: it.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", worn.url, "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"report\t{page}\n"
    assert page.read_text().startswith("<!doctype html>")
