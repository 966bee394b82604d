"""The page about a table's health, looked at in a real browser: on a desk and on a phone, by day and by night."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

import indextables as it
from indextables.report import report_page
from tests.maintenance_tables import TEXT, appended, log_of, orphan

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
        if (found := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser is installed; scripts/setup.sh installs one"
)

WIDTHS = (1280, 768, 390, 320)
# Shows the page at each width, and writes what can be measured into the page that holds it.
LOOK = """<!doctype html><meta charset="utf-8"><body>%s<pre id="seen"></pre><script>
const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
const behind = (e, view) => { for (; e; e = e.parentElement) {
  const c = rgb(view.getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
addEventListener('load', () => {
  const seen = [...document.querySelectorAll('iframe')].map(frame => {
    const view = frame.contentWindow, page = frame.contentDocument, root = page.documentElement;
    const all = selector => [...page.querySelectorAll(selector)];
    const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height, r.right]; };
    const shown = e => e.getClientRects().length > 0;
    const texts = all('main *').filter(e => shown(e) && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
    return {
      width: view.innerWidth, overflow: root.scrollWidth - root.clientWidth,
      beyond: all('main *').filter(e => shown(e) && !e.closest('.wide') && box(e)[2] > view.innerWidth + .5)
        .map(e => e.outerHTML.slice(0, 80)),
      cut: texts.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && !e.matches('.name, .cut'))
        .map(e => e.outerHTML.slice(0, 80)),
      sections: all('section').map(e => [e.id, ...box(e)]), plots: all('.plot').map(box),
      lines: all('.plot polyline').map(box), bars: all('.track i').map(box), dots: all('.plot b').map(box),
      pale: texts.map(e => [contrast(rgb(view.getComputedStyle(e).color), behind(e, view)), e.outerHTML.slice(0, 60)])
        .filter(([c]) => c < 4.5), paper: light(rgb(view.getComputedStyle(page.body).backgroundColor)),
      small: texts.filter(e => parseFloat(view.getComputedStyle(e).fontSize) < 12).length,
      advice: all('#next code').map(e => e.innerText), badge: page.querySelector('.badge').innerText };
  });
  document.getElementById('seen').textContent = JSON.stringify(seen);
});
</script>"""


def looked_at(page: str, folder: Path, *flags: str) -> dict[int, dict[str, Any]]:
    """What a browser shows of the page, by width; the browser must have nothing to complain about."""
    frames = "".join(
        f'<iframe srcdoc="{escape(page)}" style="width:{width}px;height:3000px;border:0"></iframe>'
        for width in WIDTHS
    )
    (folder / "look.html").write_text(LOOK % frames)
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            f"--user-data-dir={folder / 'profile'}",
            *flags,
            "--dump-dom",
            (folder / "look.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ":CONSOLE" not in done.stderr, done.stderr
    told = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stdout[-2000:]
    return {seen["width"]: seen for seen in json.loads(unescape(told[1]))}


@pytest.fixture(scope="module")
def worn_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of many splits, partitions and versions, with tombstones, orphans and long names."""
    folder = tmp_path_factory.mktemp("worn")
    day = "2026-05-01 and a name that is much longer than there is room for on any phone"
    regions = [f"region-{number}" for number in range(14)]
    for number in range(8):
        rows = [
            {"day": day[: 10 + 20 * (number % 4)], "region": region, "message": f"word{number}"}
            for region in regions
        ]
        it.write(folder, rows, partition_by=["day", "region"], options=TEXT)
    it.open(folder).merge(where="region < 'region-2'")
    it.open(folder).drop_partitions("region = 'region-3'")
    log_of(folder, **{"state.compaction.tombstoneThreshold": 10.0}).checkpoint(compact=False)
    orphan(folder)
    return report_page(it.open(folder))


@pytest.fixture(scope="module")
def by_day(worn_page: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    return looked_at(worn_page, tmp_path_factory.mktemp("day"))


def test_nothing_is_wider_than_the_screen(by_day: dict[int, dict[str, Any]]) -> None:
    assert sorted(by_day) == sorted(WIDTHS)
    for width, seen in by_day.items():
        assert (seen["overflow"], seen["beyond"], seen["cut"]) == (0, [], []), width


def test_charts_are_drawn(by_day: dict[int, dict[str, Any]]) -> None:
    for width, seen in by_day.items():
        assert [section[0] for section in seen["sections"]] == [
            "next",
            "growth",
            "sizes",
            "log",
            "cache",
            "partitions",
            "columns",
            "history",
        ]
        assert all(wide > 200 and high > 60 for _, wide, high, _ in seen["sections"]), width
        assert len(seen["plots"]) == len(seen["lines"]) == 2
        assert all(wide > 200 and high > 100 for wide, high, _ in seen["plots"] + seen["lines"]), width
        assert len(seen["bars"]) >= 21
        assert all(wide >= 0.3 and high > 5 for wide, high, _ in seen["bars"]), width
        # On both lines: the creation, the two versions of the merge, and the drop.
        assert len(seen["dots"]) == 2 * 4
    assert by_day[390]["plots"][0][0] < by_day[1280]["plots"][0][0]


def test_words_can_be_read(by_day: dict[int, dict[str, Any]]) -> None:
    for seen in by_day.values():
        assert (seen["pale"], seen["small"]) == ([], 0)
        assert seen["badge"] == "2 things to do"
        assert [command.split()[1] for command in seen["advice"]] == ["merge", "purge"]


def test_a_dark_screen_gets_a_dark_page(
    worn_page: str, by_day: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    by_night = looked_at(worn_page, tmp_path, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    assert by_day[1280]["paper"] > 0.9
    for seen in by_night.values():
        assert seen["paper"] < 0.05
        assert seen["pale"] == []


def test_an_empty_table_is_shown_whole_too(tmp_path: Path) -> None:
    appended(tmp_path / "t", 1)
    it.open(tmp_path / "t").drop_partitions("day = 0")
    for seen in looked_at(report_page(it.open(tmp_path / "t")), tmp_path).values():
        assert (seen["overflow"], seen["beyond"], seen["cut"], seen["pale"]) == (0, [], [], [])
        assert (seen["badge"], seen["bars"], len(seen["plots"])) == ("in good shape", [], 2)
