"""Charts as SVG that a page can hold: bars, and lines over versions."""

from collections.abc import Sequence
from html import escape

from indextables.report.facts import Bar, Point, short

_WIDE = 640
_ROW = 24
_LABEL = 220
_HIGH = 180
_EDGE = 56


def bars(found: Sequence[Bar], label: str, *, sizes: bool) -> str:
    """Horizontal bars, one below the other."""
    if not found:
        return '<p class="none">There is nothing to show.</p>'
    most = max(bar.value for bar in found) or 1
    room = _WIDE - _LABEL - 80
    rows = []
    for number, bar in enumerate(found):
        top = number * _ROW
        long = max(1.0, room * bar.value / most)
        shown = short(bar.value) if sizes else f"{bar.value:g}"
        rows.append(
            f'<g><title>{escape(bar.told)}</title><text x="{_LABEL - 8}" y="{top + 16}" text-anchor="end">'
            f"{escape(_cut(bar.name))}</text>"
            f'<rect x="{_LABEL}" y="{top + 4}" width="{long:.1f}" height="{_ROW - 8}" rx="2"/>'
            f'<text x="{_LABEL + long + 6:.1f}" y="{top + 16}" class="value">{escape(shown)}</text></g>'
        )
    return _svg("".join(rows), len(found) * _ROW, label)


def growth(points: Sequence[Point], label: str) -> str:
    """Bytes over versions, as an area; each version can be pointed at."""
    if len(points) < 2:
        return '<p class="none">There is one version so far.</p>'
    most = max(point.bytes for point in points) or 1
    first, last = points[0].version, points[-1].version
    room, high = _WIDE - _EDGE - 16, _HIGH - 40

    def place(point: Point) -> tuple[float, float]:
        across = room * (point.version - first) / max(last - first, 1)
        return _EDGE + across, 12 + high * (1 - point.bytes / most)

    places = [place(point) for point in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    floor = 12 + high
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>version {point.version}: {escape(point.operation)}, '
        f"{short(point.bytes)} in {point.splits} splits</title></circle>"
        for point, (x, y) in zip(points, places, strict=True)
    )
    body = (
        f'<polygon class="area" points="{places[0][0]:.1f},{floor} {line} {places[-1][0]:.1f},{floor}"/>'
        f'<polyline points="{line}"/>{dots}'
        f'<text x="{_EDGE - 6}" y="20" text-anchor="end">{short(most)}</text>'
        f'<text x="{_EDGE - 6}" y="{floor}" text-anchor="end">0</text>'
        f'<text x="{_EDGE}" y="{_HIGH - 8}">version {first}</text>'
        f'<text x="{_WIDE - 16}" y="{_HIGH - 8}" text-anchor="end">version {last}</text>'
    )
    return _svg(body, _HIGH, label)


def _svg(body: str, high: int, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDE} {high}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="xMinYMin meet">{body}</svg>'
    )


def _cut(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
