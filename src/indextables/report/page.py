"""The page itself: one file of HTML, without scripts and without anything from elsewhere."""

from collections.abc import Iterable
from html import escape

from indextables.report.advice import advice_for
from indextables.report.charts import bars, line, share
from indextables.report.facts import Facts, counted, short
from indextables.report.style import STYLE

_COLUMNS = 40


def page_of(facts: Facts) -> str:
    """The whole page."""
    parts = [
        _header(facts),
        _tiles(facts),
        _section("What to do next", _advice(facts), "next"),
        _section("Growth over versions", _growth(facts), "growth"),
        '<div class="two"><div>',
        _section("Splits by size", bars(facts.by_size, "Splits by size"), "sizes"),
        _section("The log", _pairs(_log(facts)), "log"),
        _section("The cache of this machine", _pairs(_cache(facts)), "cache"),
        "</div><div>",
        _section(_partitions_title(facts), bars(facts.by_partition, "Bytes by partition"), "partitions"),
        "</div></div>",
        _section("Columns", _columns(facts), "columns"),
        _section("What was done last (splits added and removed)", _history(facts), "history"),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(_name(facts))}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _name(facts: Facts) -> str:
    return facts.url.removeprefix("file://")


def _header(facts: Facts) -> str:
    todo = len(list(advice_for(facts)))
    badge = (
        f'<span class="badge care">{counted(todo, "thing")} to do</span>'
        if todo
        else '<span class="badge">in good shape</span>'
    )
    looked = f"version {facts.version}, looked at on {facts.made:%Y-%m-%d %H:%M} UTC"
    return f'<header><div><h1>{escape(_name(facts))}</h1><p class="sub">{looked}</p></div>{badge}</header>'


def _tiles(facts: Facts) -> str:
    average = short(facts.bytes / facts.splits) if facts.splits else "-"
    shown = [
        (f"{facts.rows:,}", "rows" if facts.rows != 1 else "row"),
        (short(facts.bytes), "on storage"),
        (f"{facts.splits:,}", f"splits in {counted(facts.partitions, 'partition')}"),
        (average, "a split, on average"),
    ]
    tiles = (f'<div class="tile"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in shown)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _section(title: str, body: str, name: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>'


def _partitions_title(facts: Facts) -> str:
    shown = len(facts.by_partition)
    all_ = (
        "Partitions" if shown == facts.partitions else f"Largest {shown} of {facts.partitions:,} partitions"
    )
    return f"{all_} by {' / '.join(facts.partition_columns)}" if facts.partition_columns else all_


def _advice(facts: Facts) -> str:
    found = [
        f"<div><b>{escape(a.what)}</b><p>{escape(a.why)}</p><code>{escape(a.command)}</code></div>"
        for a in advice_for(facts)
    ]
    if not found:
        return '<p class="good">Nothing: the table is in good shape.</p>'
    return f'<div class="advice">{"".join(found)}</div>'


def _growth(facts: Facts) -> str:
    if len(facts.growth) < 2:
        return '<p class="none">There is one version so far.</p>'
    size = line(facts.growth, lambda p: p.bytes, short, "Size")
    splits = line(facts.growth, lambda p: p.splits, lambda n: f"{n:,.0f}", "Splits")
    key = '<p class="key"><i></i>versions that did more than add rows; point at one to see what</p>'
    return f'<div class="lines">{size}{splits}</div>{key}'


def _log(facts: Facts) -> Iterable[tuple[str, str, str]]:
    state = facts.state
    yield "newest state", "none" if state.version is None else f"version {state.version} ({state.format})", ""
    yield "versions after it", str(facts.version - (-1 if state.version is None else state.version)), ""
    yield "manifests", str(state.num_manifests), ""
    ratio = f"{100 * state.tombstone_ratio:.1f}%"
    told = f"{ratio} of the live splits; above a threshold the state is compacted"
    bar = share(state.tombstone_ratio, told, much=state.needs_compaction) if state.num_tombstones else ""
    yield "tombstones", f"{state.num_tombstones:,} ({ratio} of live)", bar
    yield "needs compaction", "yes" if state.needs_compaction else "no", ""
    yield "splits that a merge skipped", str(facts.skipped), ""
    orphans = facts.orphans
    yield "files that no version needs", f"{orphans.orphans_found:,} ({short(orphans.bytes_found)})", ""
    yield "files of the log past their retention", f"{orphans.log_files_found:,}", ""


def _cache(facts: Facts) -> Iterable[tuple[str, str, str]]:
    cache = facts.cache
    full = cache.bytes / cache.limit if cache.limit else 0.0
    yield "folder", cache.folder, ""
    yield "indexes", f"{cache.entries:,}", ""
    bar = share(full, f"{100 * full:.1f}%", much=full > 1)
    yield "size", f"{short(cache.bytes)} of {short(cache.limit)}", bar
    yield "hits and misses of this process", f"{cache.hits:,} and {cache.misses:,}", ""


def _pairs(pairs: Iterable[tuple[str, str, str]]) -> str:
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(value)}{chart}</td></tr>" for name, value, chart in pairs
    )
    return f"<table>{''.join(rows)}</table>"


def _columns(facts: Facts) -> str:
    head = "<thead><tr><th>name</th><th>type</th><th></th><th>splits with bounds</th>"
    head += "<th class='late'>least value</th><th class='late'>greatest value</th></tr></thead>"
    rows = []
    for column in facts.columns[:_COLUMNS]:
        told = f"{100 * column.coverage:.0f}%"
        tag = f"<span class='tag'>{column.role}</span>" if column.role else ""
        rows.append(
            f"<tr><td>{escape(column.name)}</td><td>{escape(column.type)}</td><td>{tag}</td>"
            f"<td>{told}{share(column.coverage, told, much=False)}</td>"
            f"<td class='late cut'>{escape(column.least or '')}</td>"
            f"<td class='late cut'>{escape(column.greatest or '')}</td></tr>"
        )
    more = len(facts.columns) - _COLUMNS
    left = f'<p class="key">and {counted(more, "column")} more</p>' if more > 0 else ""
    return f"<div class='wide'><table>{head}{''.join(rows)}</table></div>{left}"


def _history(facts: Facts) -> str:
    head = "<thead><tr><th class='n'>version</th><th>time (UTC)</th><th>operation</th>"
    head += "<th class='n'>added</th><th class='n'>removed</th><th class='n late'>bytes added</th>"
    head += "<th class='late'>by</th></tr></thead>"
    rows = []
    for entry in facts.history:
        figures = dict(entry["metrics"])
        rows.append(
            f"<tr><td class='n'>{entry['version']}</td>"
            f"<td class='time'>{entry['timestamp']:%Y-%m-%d %H:%M}</td>"
            f"<td>{escape(entry['operation'])}</td><td class='n'>{figures.get('numAddedFiles', '')}</td>"
            f"<td class='n'>{figures.get('numRemovedFiles', '')}</td><td class='n late'>"
            f"{short(figures['numAddedBytes']) if 'numAddedBytes' in figures else ''}</td>"
            f"<td class='late'>{escape(entry['engine'] or '')}</td></tr>"
        )
    return f"<div class='wide'><table>{head}{''.join(rows)}</table></div>"
