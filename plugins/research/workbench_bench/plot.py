"""Regret against calls, one panel for each world (matplotlib, extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.base.distribution import pip_install
from workbench.errors import PluginError, SpecError


def check_plot(path: Path) -> None:
    """Raise PluginError if matplotlib is missing, and SpecError for a file that cannot be written."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise PluginError(f"--plot needs matplotlib: {pip_install('research[plot]')}") from None
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in known:
        raise SpecError(f"--plot: '{path.name}' is not an image file name", hint=f"Known: {', '.join(sorted(known))}.")
    if not path.absolute().parent.is_dir():
        raise SpecError(f"--plot: there is no folder {path.absolute().parent}", hint="Make it first.")


def _label(rows: Sequence[dict[str, Any]], name: str) -> str:
    nothing = sorted({f"{r['world']} {r['budget']}" for r in rows if r["optimizer"] == name and not r["measured"]})
    return f"{name} (nothing measured: {', '.join(nothing)})" if nothing else name


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the rows of `workbench plugin bench`: means over seeds as lines, their 95% intervals as bars.

    Optimizers without a measurement are named without a line.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    worlds = list(dict.fromkeys(r["world"] for r in rows))
    wide = min(4, len(worlds))
    high = -(-len(worlds) // wide)
    figure, axes = pyplot.subplots(high, wide, figsize=(4 * wide, 3.2 * high), squeeze=False, sharey=True)
    for place, world in zip(axes.flat, worlds, strict=False):
        for index, name in enumerate(dict.fromkeys(r["optimizer"] for r in rows)):
            mine = [r for r in rows if r["world"] == world and r["optimizer"] == name and r["measured"]]
            means = [r["regret"]["mean"] for r in mine]
            errors = [
                [m - r["regret"]["ci95"][0] for m, r in zip(means, mine, strict=True)],
                [r["regret"]["ci95"][1] - m for m, r in zip(means, mine, strict=True)],
            ]
            place.errorbar(
                [r["calls"] for r in mine],
                means,
                errors,
                label=_label(rows, name),
                marker="o",
                markersize=3,
                capsize=2,
                linewidth=1.2,
                color=f"C{index % 10}",
                linestyle="--" if name == "random" else "-",
            )
        place.set_title(world)
        place.set_xlabel("calls spent")
        place.axhline(0, color="0.7", linewidth=0.8)
    for place in axes[:, 0]:
        place.set_ylabel("regret")
    for place in axes.flat[len(worlds) :]:
        place.set_visible(False)
    axes.flat[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
