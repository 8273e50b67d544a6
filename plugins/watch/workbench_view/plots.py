"""Plots of a run as SVG, in the colors of the page around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import escape

if TYPE_CHECKING:
    from workbench.proof import LearningCurve
    from workbench_view.facts import Point

#: Colors by meaning: custom properties of the page.
INK, SOFT, ACCENT, GOOD, BAD = (f"var(--{name})" for name in ("ink", "soft", "accent", "good", "bad"))
#: Maximum points with a name next to them.
_NAMED = 12
#: Width of a plot, size of a text and of a small one, and approximate width of a letter relative to its size.
_WIDTH, _TEXT, _SMALL, _LETTER = 460.0, 9.0, 8.0, 0.6

#: Where a name may stand, below its point (or above, if negative), the nearest first.
_SHIFTS = sorted([9.0 * n - 3 for n in range(-18, 18)], key=lambda dy: abs(dy + 2.9))

Place = tuple[float, float]


def draw_proof(diff: float, ci95: Sequence[float], noise: float | None, *, gain: bool) -> str:
    """Draw the difference with its interval and the noise band of two identical variants. gain: the gain is shown."""
    band = max(noise or 0.0, 0.02)
    axes = _Axes(_Scale.over([*ci95, diff, band, -band], 10, _WIDTH - 10), _Scale(0, 1, 80, 4))
    x, y, colour = axes.x.at, axes.y.at(0.4), GOOD if gain else BAD if ci95[1] < 0 else ACCENT
    drawn = [_line([(x(0), axes.y.at(0)), (x(0), axes.y.at(1))], SOFT, 1)]
    if noise is not None:
        drawn.append(_box(x(-noise), 4, x(noise) - x(-noise), 76, SOFT, 0.25))
        drawn.append(_text("noise", x(0), 13, SOFT, _SMALL, "middle"))
    drawn += [_line([(x(ci95[0]), y), (x(ci95[1]), y)], colour, 3), _dot(x(diff), y, colour, 4.5)]
    drawn.append(_text(f"{diff:+.3f}", x(diff), y - 8, colour, 10, "middle"))
    return _svg(110, [*drawn, *axes.draw_x("score of the winner, less that of the baseline")])


def draw_progress(points: Sequence[Point], winner: str) -> str:
    """Draw scores on val against the calls paid so far, with the best so far."""
    axes = _Axes.around([(p.calls, p.score) for p in points])
    best, steps = -math.inf, list[Place]()
    for point in points:
        if steps:
            steps.append((point.calls, best))
        best = max(best, point.score)
        steps.append((point.calls, best))
    drawn = [_line([axes.at(place) for place in steps], ACCENT, 1.5)]
    for point in points:
        won = point.candidate == winner
        drawn.append(_dot(*axes.at((point.calls, point.score)), GOOD if won else SOFT, 4 if won else 2))
    drawn += axes.names([("winner", (p.calls, p.score), GOOD) for p in points if p.candidate == winner])
    return _svg(200, [*drawn, *axes.draw_x("calls paid"), *axes.draw_y("score on val")])


def draw_training(curves: Sequence[LearningCurve]) -> str:
    """Draw the reward of each training step; several curves are named."""
    axes = _Axes.around([point for curve in curves for point in curve.points])
    drawn = list[str]()
    named = [(curve, (ACCENT, GOOD, INK, BAD)[n % 4]) for n, curve in enumerate(curves)]
    drawn += [_line([axes.at(point) for point in curve.points], colour, 1.5) for curve, colour in named]
    if len(curves) > 1:
        drawn += axes.names([(curve.name, curve.points[-1], colour) for curve, colour in named])
    return _svg(200, [*drawn, *axes.draw_x("step"), *axes.draw_y("mean reward of the rollouts")])


def draw_tradeoff(points: Sequence[Point], cost: str, front: Sequence[str], winner: str, baseline: str) -> str:
    """Draw the score against a cost per row; candidates on the Pareto front are joined and named."""
    unit, what = (1000.0, "dollars per 1,000 rows") if cost == "usd" else (1.0, f"{cost} per row")
    places = {p.candidate: (unit * p.cost[cost], p.score) for p in points}
    axes = _Axes.around([*places.values()])
    ahead = sorted((name for name in places if name in front), key=lambda name: places[name][0])
    drawn = [_line([axes.at(places[name]) for name in ahead], ACCENT, 1)]
    for name, place in places.items():
        drawn.append(_dot(*axes.at(place), *((ACCENT, 2.5) if name in front else (SOFT, 2))))
    words = {baseline: "baseline", winner: "winner"}
    shown = [name for name in dict.fromkeys([winner, baseline, *ahead[:_NAMED]]) if name in places]
    drawn += axes.names([(words.get(name, name[:8]), places[name], INK) for name in shown])
    return _svg(200, [*drawn, *axes.draw_x(f"{what}, on val"), *axes.draw_y("score on val")])


def draw_bill(roles: Mapping[str, Mapping[str, float]], what: str) -> str:
    """Draw the spending of each role."""
    names = sorted(roles, key=lambda role: -roles[role][what])
    left = max(map(len, names)) * _TEXT * _LETTER + 14
    bottom = 25.0 * len(names) + 4
    axes = _Axes(_Scale.over([0, *(roles[n][what] for n in names)], left, _WIDTH - 60), _Scale(0, 1, bottom, 4))
    drawn = list[str]()
    for n, name in enumerate(names):
        value, y = roles[name][what], 25 * n + 16.5
        told = f"${value:.4f}" if what == "usd" else f"{value:,}"
        drawn.append(_box(axes.x.at(0), y - 7.5, axes.x.at(value) - axes.x.at(0), 15, ACCENT))
        drawn += [_text(name, left - 6, y + 3, INK, _TEXT, "end"), _text(told, axes.x.at(value) + 4, y + 3, INK)]
    return _svg(bottom + 34, [*drawn, *axes.draw_x({"usd": "dollars", "calls": "calls"}.get(what, what))])


def draw_graph(edges: Sequence[tuple[str, str]], layers: Sequence[Sequence[str]], changed: Sequence[str]) -> str:
    """Draw a workflow from left to right; changed nodes stand out."""
    tallest = max(len(layer) for layer in layers)
    boxes, x = dict[str, tuple[float, float, float]](), 4.0  # left, middle, width
    for layer in layers:
        wide = max(len(name) for name in layer) * _TEXT * _LETTER + 14
        for n, name in enumerate(layer):
            boxes[name] = (x, 20 + 36 * (n + (tallest - len(layer)) / 2), wide)
        x += wide + 44
    drawn = list[str]()
    for a, b in edges:
        (left, y, wide), (to_x, to_y, _) = boxes[a], boxes[b]
        drawn += _arrow((left + wide, y), (to_x, to_y))
    for name, (left, y, wide) in boxes.items():
        colour = ACCENT if name in changed else INK
        frame = f'<rect x="{left:.1f}" y="{y - 11:.1f}" width="{wide:.1f}" height="22" rx="4"'
        drawn.append(f'{frame} style="fill: none; stroke: {colour}"/>')
        drawn.append(_text(name, left + wide / 2, y + 3, colour, _TEXT, "middle"))
    return _svg(36 * tallest + 4, drawn, max(x - 40, _WIDTH))


@dataclass(frozen=True)
class _Scale:
    """Values from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Scale:
        """Return a scale with some room around the values."""
        low, high = min(values), max(values)
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return cls(low - room * (low != 0), high + room, start, end)

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return about five round values, and their texts."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.999)
        values = [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        digits = max(0, -math.floor(math.log10(step)))
        return [(value, f"{value:,.{digits}f}" if digits < 7 else f"{value:g}") for value in values]


@dataclass(frozen=True)
class _Axes:
    x: _Scale
    y: _Scale

    @classmethod
    def around(cls, points: Sequence[Place]) -> _Axes:
        """Return the axes of a plot of points."""
        xs, ys = [x for x, _ in points], [y for _, y in points]
        return cls(_Scale.over(xs, 46, _WIDTH - 50), _Scale.over(ys, 166, 10))

    def at(self, place: Place) -> Place:
        return self.x.at(place[0]), self.y.at(place[1])

    def names(self, labels: Iterable[tuple[str, Place, str]]) -> Iterable[str]:
        """Draw names next to points, each as near as it covers none before it."""
        taken = list[tuple[float, float, float]]()  # left, right and base line
        for text, place, colour in labels:
            x, y = self.at(place)
            wide = len(text) * _SMALL * _LETTER
            spots = [(left, y + dy) for dy in _SHIFTS for left in (x + 5, x - 5 - wide)]
            inside = [s for s in spots if 0 <= s[0] <= _WIDTH - wide and _SMALL <= s[1] <= self.y.start]
            free = [
                (left, base)
                for left, base in inside
                if all(left >= b or a >= left + wide or abs(base - c) >= _SMALL + 1 for a, b, c in taken)
            ]
            left, base = [*free, *inside, *spots][0]
            taken.append((left, left + wide, base))
            yield _text(text, left, base, colour)

    def draw_x(self, title: str) -> Iterable[str]:
        """Draw the axis below."""
        y = self.y.start
        yield _line([(self.x.start, y), (self.x.end, y)], SOFT, 1)
        for value, told in self.x.ticks():
            x = self.x.at(value)
            yield from (_line([(x, y), (x, y + 3)], SOFT, 1), _text(told, x, y + 13, INK, _TEXT, "middle"))
        yield _text(title, (self.x.start + self.x.end) / 2, y + 28, INK, _TEXT, "middle")

    def draw_y(self, title: str) -> Iterable[str]:
        """Draw the axis on the left."""
        x = self.x.start
        yield _line([(x, self.y.start), (x, self.y.end)], SOFT, 1)
        for value, told in self.y.ticks():
            y = self.y.at(value)
            yield from (_line([(x - 3, y), (x, y)], SOFT, 1), _text(told, x - 5, y + 3, INK, _TEXT, "end"))
        middle = (self.y.start + self.y.end) / 2
        yield f'<g transform="rotate(-90 10 {middle:.1f})">{_text(title, 10, middle, INK, _TEXT, "middle")}</g>'


def _line(places: Sequence[Place], colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" style="fill: none; stroke: {colour}; stroke-width: {width:g}"/>'


def _dot(x: float, y: float, colour: str, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" style="fill: {colour}"/>'


def _box(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} style="fill: {colour}; opacity: {opacity:g}"/>'


def _text(text: str, x: float, y: float, colour: str, size: float = _SMALL, anchor: str = "start") -> str:
    style = f"fill: {colour}; font: {size:g}px sans-serif; text-anchor: {anchor}"
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{style}">{escape(text)}</text>'


def _arrow(start: Place, end: Place) -> Iterable[str]:
    """Draw a line to just before `end`, and the head of the arrow."""
    long = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    dx, dy = (end[0] - start[0]) / long, (end[1] - start[1]) / long
    tip = (end[0] - 2 * dx, end[1] - 2 * dy)
    head = [(tip[0] - 6 * dx + s * 3 * dy, tip[1] - 6 * dy - s * 3 * dx) for s in (-1, 1)]
    yield _line([start, tip], SOFT, 1)
    yield _line([head[0], tip, head[1]], SOFT, 1)


def _svg(height: float, drawn: Iterable[str], width: float = _WIDTH) -> str:
    """Return an element for a page, as wide as its container."""
    view = f"0 0 {width:.0f} {height:.0f}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" role="img">{"".join(drawn)}</svg>'
