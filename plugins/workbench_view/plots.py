"""Plots of a run as SVG (matplotlib, extra `plot`), whose colours are those of the page around them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.distribution import pip_install
from workbench.errors import PluginError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench_view.facts import Point

#: Colours that stand for those of the page: what is drawn in one gets the class beside it.
_CLASSES = {"#010101": "ink", "#020202": "soft", "#030303": "accent", "#040404": "good", "#050505": "bad"}
INK, SOFT, ACCENT, GOOD, BAD = _CLASSES
#: Points with a name beside them.
_NAMED = 12


def draw_proof(diff: float, ci95: Sequence[float], noise: float | None, *, gain: bool) -> str:
    """The difference with its interval, beside the band of two equal arms. gain: whether it is shown to be one."""

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=SOFT, linewidth=1)
        if noise is not None:
            axes.axvspan(-noise, noise, color=SOFT, alpha=0.25, linewidth=0)
            axes.annotate("two equal arms", (0, 0.95), ha="center", va="top", color=SOFT, fontsize=8)
        colour = GOOD if gain else BAD if ci95[1] < 0 else ACCENT
        axes.plot(ci95, [0.4, 0.4], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot([diff], [0.4], "o", color=colour, markersize=9)
        axes.annotate(f"{diff:+.3f}", (diff, 0.5), ha="center", va="bottom", color=colour, fontsize=10)
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.set_xlabel("score of the winner, less that of the baseline")

    return _svg(draw, 6.4, 1.5)


def draw_course(points: Sequence[Point], winner: str) -> str:
    """Scores on val against the calls that had been paid, with the best so far."""

    def draw(axes: Axes) -> None:
        best, steps = float("-inf"), list[tuple[int, float]]()
        for point in points:
            best = max(best, point.score)
            steps.append((point.calls, best))
        axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=ACCENT, linewidth=1.5)
        axes.plot([p.calls for p in points], [p.score for p in points], "o", color=SOFT, markersize=4)
        for point in points:
            if point.candidate == winner:
                axes.plot([point.calls], [point.score], "o", color=GOOD, markersize=8)
                _name(axes, "winner", point.calls, point.score, GOOD)
        axes.set_xlabel("calls paid")
        axes.set_ylabel("score on val")

    return _svg(draw, 6.4, 2.8)


def draw_tradeoff(points: Sequence[Point], cost: str, front: Sequence[str], winner: str, baseline: str) -> str:
    """Score against a cost per row; those on the Pareto front are joined and named."""

    def draw(axes: Axes) -> None:
        axes.plot([p.cost[cost] for p in points], [p.score for p in points], "o", color=SOFT, markersize=4)
        ahead = sorted((p for p in points if p.candidate in front), key=lambda p: p.cost[cost])
        line = [p.cost[cost] for p in ahead], [p.score for p in ahead]
        axes.plot(*line, "o-", color=ACCENT, linewidth=1, markersize=5)
        shown = {winner, baseline, *(p.candidate for p in ahead[:_NAMED])}
        for p in points:
            if p.candidate in shown:
                name = {winner: "winner", baseline: "baseline"}.get(p.candidate, p.candidate[:8])
                _name(axes, name, p.cost[cost], p.score)
        axes.set_xlabel(f"{cost} per row, on val")
        axes.set_ylabel("score on val")

    return _svg(draw, 6.4, 2.8)


def draw_bill(roles: Mapping[str, Mapping[str, Any]], what: str) -> str:
    """What each role spent."""

    def draw(axes: Axes) -> None:
        names = sorted(roles, key=lambda role: roles[role][what])
        values = [roles[name][what] for name in names]
        bars = axes.barh(names, values, color=ACCENT, height=0.6)
        told = [f"${value:.4f}" if what == "usd" else f"{value:,}" for value in values]
        axes.bar_label(bars, told, padding=4, color=INK, fontsize=8)
        axes.set_xlabel({"usd": "dollars", "calls": "calls"}.get(what, what))
        axes.margins(x=0.15)

    return _svg(draw, 6.4, 0.7 + 0.35 * len(roles))


def draw_graph(edges: Sequence[tuple[str, str]], layers: Sequence[Sequence[str]], changed: Sequence[str]) -> str:
    """A workflow from left to right; nodes that differ stand out."""
    places = {name: (x, -(y - (len(layer) - 1) / 2)) for x, layer in enumerate(layers) for y, name in enumerate(layer)}

    def draw(axes: Axes) -> None:
        for a, b in edges:
            arrow = {"arrowstyle": "->", "color": SOFT, "shrinkA": 22, "shrinkB": 26}
            axes.annotate("", places[b], places[a], arrowprops=arrow)
        for name, (x, y) in places.items():
            colour = ACCENT if name in changed else INK
            box = {"boxstyle": "round,pad=0.4", "facecolor": "none", "edgecolor": colour}
            axes.annotate(name, (x, y), ha="center", va="center", color=colour, bbox=box, fontsize=9)
        axes.set_xlim(-0.6, max(len(layers) - 0.4, 0.6))
        tallest = max(len(layer) for layer in layers)
        axes.set_ylim(-tallest / 2 - 0.3, tallest / 2 + 0.3)
        axes.set_axis_off()

    return _svg(draw, min(11.0, 1.2 + 1.6 * len(layers)), 0.6 + 0.5 * max(len(layer) for layer in layers))


def _name(axes: Axes, text: str, x: float, y: float, colour: str = INK) -> None:
    axes.annotate(text, (x, y), xytext=(5, 3), textcoords="offset points", color=colour, fontsize=8)


def _svg(draw: Callable[[Axes], None], width: float, height: float) -> str:
    """A drawing as an element for a page. Raises PluginError without matplotlib."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise PluginError(f"the plots of a report need matplotlib: {pip_install('plot')}") from None
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "workbench", "font.family": "sans-serif", "font.size": 9}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        for name, spine in axes.spines.items():
            spine.set_visible(name in ("left", "bottom"))
            spine.set_color(SOFT)
        axes.tick_params(colors=SOFT, labelcolor=INK)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        draw(axes)
        figure.patch.set_visible(False)
        out = io.StringIO()
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
    return _with_classes(out.getvalue())


def _with_classes(svg: str) -> str:
    """The element alone, its colours as custom properties of the page, so that it fits a dark one."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    for colour, name in _CLASSES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg
