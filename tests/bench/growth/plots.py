"""Line plots as SVG, in a few lines of code, so that a document needs no library and no image service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 300, 190
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 28, 34
LINE = "#1f6feb"
INK = "#57606a"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One line of a plot. Its points have equal horizontal distances."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]


def svg(heading: str, plots: Sequence[Plot]) -> str:
    """Draw the plots next to each other. Every vertical axis starts at 0."""
    width = WIDTH * len(plots)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
        f'height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}" role="img" aria-label="{escape(heading)}">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for place, plot in enumerate(plots):
        parts += [f'<g transform="translate({place * WIDTH} 0)">', *_lines(plot), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lines(plot: Plot) -> list[str]:
    top = _round_up(max([*plot.values, 0.0]))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(plot.values) - 1)
    below = HEIGHT - BOTTOM
    points = [
        (LEFT + number * step, below - value / top * (below - TOP))
        for number, value in enumerate(plot.values)
    ]
    lines = [f'<text x="{LEFT}" y="16" font-weight="bold">{escape(plot.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = below - share * (below - TOP)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * share:,.6g}</text>')
    for (x, _), label in zip(points, plot.labels, strict=True):
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{escape(label)}</text>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    lines.append(f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{LINE}"/>' for x, y in points]
    return lines


def _round_up(value: float) -> float:
    """Round up to 1, 2, 4, 5 or 8 times a power of ten. Return 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.01
    while True:
        for factor in (1, 2, 4, 5, 8):
            if value <= factor * power:
                return factor * power
        power *= 10
