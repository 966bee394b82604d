"""The page itself: one file of HTML, without scripts and without anything from elsewhere."""

from collections.abc import Iterable
from html import escape

from indextables.report.advice import advice_for
from indextables.report.charts import bars, growth
from indextables.report.facts import Facts, short

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #57606a; --paper: #fff; --card: #f6f8fa;
  --line: #d0d7de; --bar: #1f6feb; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --paper: #0d1117;
  --card: #161b22; --line: #30363d; --bar: #4493f8; --good: #3fb950; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 12px; }
.sub { color: var(--dim); margin: 4px 0 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin-bottom: 16px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--dim); font-size: 13px; }
section { margin-top: 16px; overflow-x: auto; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: 16px; }
.two section { margin-top: 0; }
.two { margin-top: 16px; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); }
svg .value { fill: var(--dim); }
svg rect, svg circle { fill: var(--bar); }
svg polyline { fill: none; stroke: var(--bar); stroke-width: 2; }
svg .area { fill: var(--bar); opacity: .15; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--dim); font-weight: 500; }
td.n, th.n { text-align: right; }
ol { margin: 0; padding-left: 20px; }
li + li { margin-top: 10px; }
code { background: var(--paper); border: 1px solid var(--line); border-radius: 4px; padding: 1px 6px;
  overflow-wrap: anywhere; }
.good { color: var(--good); } .none { color: var(--dim); margin: 0; }
"""


def page_of(facts: Facts) -> str:
    """The whole page."""
    parts = [
        f"<h1>{escape(facts.url)}</h1>",
        f'<p class="sub">version {facts.version}, looked at on {facts.made:%Y-%m-%d %H:%M} UTC</p>',
        _tiles(facts),
        _section("What to do next", _advice(facts), "next"),
        _section("Growth over versions", growth(facts.growth, "Bytes over versions"), "growth"),
        '<div class="two">',
        _section("Splits by size", bars(facts.by_size, "Splits by size", sizes=False), "sizes"),
        _section(
            f"Largest partitions ({facts.partitions} in all)",
            bars(facts.by_partition, "Bytes by partition", sizes=True),
            "partitions",
        ),
        "</div>",
        '<div class="two">',
        _section("The log", _pairs(_log(facts)), "log"),
        _section("The cache of this machine", _pairs(_cache(facts)), "cache"),
        "</div>",
        _section("What was done last", _history(facts), "history"),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(facts.url)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _tiles(facts: Facts) -> str:
    shown = [
        (f"{facts.rows:,}", "rows"),
        (f"{facts.splits:,}", "splits"),
        (short(facts.bytes), "on storage"),
        (short(facts.bytes / facts.splits) if facts.splits else "-", "a split, on average"),
        (f"{facts.columns}", "columns"),
        (", ".join(facts.partition_columns) or "none", "partition columns"),
        (", ".join(facts.text_columns) or "none", "columns searched by words"),
    ]
    tiles = (f'<div class="tile"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in shown)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _section(title: str, body: str, name: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>'


def _advice(facts: Facts) -> str:
    found = [f"<li>{escape(a.why)}<br><code>{escape(a.command)}</code></li>" for a in advice_for(facts)]
    if not found:
        return '<p class="good">Nothing: the table is in good shape.</p>'
    return f"<ol>{''.join(found)}</ol>"


def _log(facts: Facts) -> Iterable[tuple[str, str]]:
    state = facts.state
    yield "newest state", "none" if state.version is None else f"version {state.version} ({state.format})"
    yield "versions after it", str(facts.version - (-1 if state.version is None else state.version))
    yield "manifests", str(state.num_manifests)
    yield "tombstones", f"{state.num_tombstones} ({100 * state.tombstone_ratio:.1f}% of the live splits)"
    yield "needs compaction", "yes" if state.needs_compaction else "no"
    yield "splits that a merge skipped", str(facts.skipped)
    yield "files that no version needs", f"{facts.orphans.orphans_found} ({short(facts.orphans.bytes_found)})"
    yield "files of the log past their retention", str(facts.orphans.log_files_found)


def _cache(facts: Facts) -> Iterable[tuple[str, str]]:
    cache = facts.cache
    yield "folder", cache.folder
    yield "index parts", str(cache.entries)
    yield "size", f"{short(cache.bytes)} of {short(cache.limit)}"
    yield "hits and misses of this process", f"{cache.hits} and {cache.misses}"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f"<table>{''.join(rows)}</table>"


def _history(facts: Facts) -> str:
    head = "<tr><th class='n'>version</th><th>time (UTC)</th><th>operation</th>"
    head += "<th class='n'>splits added</th><th class='n'>removed</th><th class='n'>bytes added</th>"
    head += "<th>by</th></tr>"
    rows = []
    for entry in facts.history:
        figures = dict(entry["metrics"])
        rows.append(
            f"<tr><td class='n'>{entry['version']}</td><td>{entry['timestamp']:%Y-%m-%d %H:%M:%S}</td>"
            f"<td>{escape(entry['operation'])}</td><td class='n'>{figures.get('numAddedFiles', '')}</td>"
            f"<td class='n'>{figures.get('numRemovedFiles', '')}</td>"
            f"<td class='n'>{short(figures['numAddedBytes']) if 'numAddedBytes' in figures else ''}</td>"
            f"<td>{escape(entry['engine'] or '')}</td></tr>"
        )
    return f"<table>{head}{''.join(rows)}</table>"
