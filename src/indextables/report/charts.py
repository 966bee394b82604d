"""Charts that a page can hold without scripts: bars, shares of a whole, and lines over versions.

Words are HTML, so that they keep their size on a phone; only lines are SVG, which may be stretched.
"""

from collections.abc import Callable, Sequence
from html import escape

from indextables.report.facts import Bar, Point, short

_NOTHING = '<p class="none">There is nothing to show.</p>'
# So many places of a line are drawn at most; the rest lies between them.
_PLACES = 240
_DOTS = 80


def bars(found: Sequence[Bar], label: str) -> str:
    """Horizontal bars, one below the other."""
    if not found:
        return _NOTHING
    most = max(bar.value for bar in found) or 1
    rows = (
        f'<div class="row" title="{escape(bar.told)}"><span class="name">{escape(bar.name)}</span>'
        f'<span class="track"><i style="width:{max(0.5, 100 * bar.value / most):.1f}%"></i></span>'
        f'<span class="value">{escape(bar.shown)}</span></div>'
        for bar in found
    )
    return f'<div class="bars" role="img" aria-label="{escape(label)}">{"".join(rows)}</div>'


def share(part: float, told: str, *, much: bool) -> str:
    """How much of a whole; `much` is too much."""
    width = min(100.0, max(0.0, 100 * part))
    kind = "share much" if much else "share"
    return f'<span class="{kind}" title="{escape(told)}"><i style="width:{width:.1f}%"></i></span>'


def line(
    points: Sequence[Point], value: Callable[[Point], float], shown: Callable[[float], str], label: str
) -> str:
    """One figure over versions, as an area; versions that did more than add rows have dots."""
    if len(points) < 2:
        return '<p class="none">There is one version so far.</p>'
    drawn = _thinned(points, _PLACES)
    most = max(value(point) for point in drawn) or 1
    first, last = points[0].version, points[-1].version

    def place(point: Point) -> tuple[float, float]:
        return 100 * (point.version - first) / max(last - first, 1), 100 * (1 - value(point) / most)

    line_ = " ".join(f"{x:.2f},{y:.2f}" for x, y in map(place, drawn))
    special = [point for point in drawn if not point.appends]
    dotted = _thinned(special, _DOTS)
    if points[-1].appends:
        dotted.append(points[-1])
    dots = "".join(
        f'<b style="left:{x:.2f}%;top:{y:.2f}%" class="{"plain" if point.appends else "other"}" '
        f'title="{escape(_told(point))}"></b>'
        for point, (x, y) in ((p, place(p)) for p in dotted)
    )
    return (
        f'<figure class="line" role="img" aria-label="{escape(label)}">'
        f'<figcaption>{escape(label)}</figcaption><span class="most">{escape(shown(most))}</span>'
        '<div class="plot"><svg viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<polygon points="0,100 {line_} 100,100"/><polyline points="{line_}"/></svg>{dots}</div>'
        f'<div class="axis"><span>version {first}</span><span>{_span(points)}</span>'
        f"<span>version {last}</span></div></figure>"
    )


def _span(points: Sequence[Point]) -> str:
    """From when to when."""
    first, last = points[0].time, points[-1].time
    if first.date() == last.date():
        return f"{first:%Y-%m-%d %H:%M} to {last:%H:%M}"
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _told(point: Point) -> str:
    return (
        f"version {point.version} ({point.time:%Y-%m-%d %H:%M} UTC): {point.operation}, then "
        f"{short(point.bytes)} in {point.splits} splits"
    )


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Points at even distances, the last one among them."""
    step = max(1, -(-len(points) // most))
    kept = list(points[::-step])
    return kept[::-1]
