"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.text import visible
from workbench.errors import SpecError
from workbench.study import find_undominated
from workbench_view import plots
from workbench_view.facts import Facts, Point, Summary
from workbench_view.text_diff import list_changes

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.workflow import Workflow

_HERE = Path(__file__).parent
#: Costs to compare candidates by; the first one that differs is used.
_COSTS = ("usd", "tokens", "calls", "latency")

#: Names of the costs of a row on a page.
_COST_NAMES = {"usd": "dollars per 1,000 rows", "latency": "seconds", "p95_latency": "seconds, 95th percentile"}


def write_page(facts: Facts) -> str:
    """Return the page. Texts of models and rows are escaped, so they are shown and never run."""
    template = environment().get_template("report.html")
    return template.render(
        facts=facts,
        report=facts.report,
        changes=list_changes(facts.changes),
        pictures=draw_pictures(facts),
        style=read_style(),
    )


@cache
def environment() -> Environment:
    """Return the templates. Values are escaped; invisible characters, and those that reverse text, are shown as
    escapes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"signed": lambda value: f"{value:+.3f}", "score": format_score, "value": _value}
    made.filters |= {"cost_name": lambda name: _COST_NAMES.get(name, name), "cost_value": format_cost}
    made.filters |= {"count": lambda value: f"{value:,}", "usd": format_usd, "span": format_seconds}
    return made


def read_style() -> str:
    """Return the style of all pages."""
    return (_HERE / "assets" / "style.css").read_text(encoding="utf-8")


def format_usd(value: float | None) -> str:
    """Format dollars, with enough digits for a small price."""
    return "–" if value is None else "$0" if not value else f"${value:.2f}" if value >= 1 else f"${value:.2g}"


def format_cost(value: float, name: str) -> str:
    """Format a cost of a row by its name; dollars as those of 1,000 rows, which can be read."""
    return f"{1000 * value if name == 'usd' else value:.4g}"


def format_seconds(value: float | None) -> str:
    """Format a time for readers: < 1 ms, 3 ms, 2.4 s, 5 min."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.001 else "< 1 ms" if value else "0 s"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def format_score(value: float | None) -> str:
    """Format a score for display; a dash for none."""
    return "–" if value is None else f"{value:.3f}"


def _value(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def draw_pictures(facts: Summary) -> dict[str, str]:
    """Draw the plots that the run has data for, by name."""
    from markupsafe import Markup

    return {name: Markup(draw()) for name, draw in list_pictures(facts).items()}


def list_pictures(facts: Summary) -> dict[str, Callable[[], str]]:
    """Return the drawing function of each plot that the run has data for, by name."""
    report, found = facts.report, dict[str, Callable[[], str]]()
    if facts.tested:
        gain = report["gain"]
        found["proof"] = partial(plots.draw_proof, gain["diff"], gain["ci95"], facts.noise, gain=gain["shown"])
    winner, baseline = report["best"]["workflow"], report["baseline"]["workflow"]
    if len(facts.points) > 1:
        found["progress"] = partial(plots.draw_progress, facts.points, winner)
    if curves := [curve for curve in facts.curves if len(curve.points) > 1]:
        found["training"] = partial(plots.draw_training, curves)
    if cost := _telling_cost(facts.points):
        front = pareto_front(facts.points, cost)
        found["tradeoff"] = partial(plots.draw_tradeoff, facts.points, cost, front, winner, baseline)
    if roles := report["spent"].get("by_role"):
        what = "usd" if any(spent["usd"] for spent in roles.values()) else "calls"
        found["bill"] = partial(plots.draw_bill, roles, what)
    changed = {address.split(".")[1] for address, _, _ in facts.changes if address.startswith("nodes.")}
    for name, workflow in (("before", facts.before), ("after", facts.after)):
        if workflow is not None and (graph := _read_graph(workflow)) is not None:
            found[name] = partial(plots.draw_graph, *graph, sorted(changed))
    return found


def _telling_cost(points: Sequence[Point]) -> str | None:
    """Return a cost by which candidates differ."""
    for cost in _COSTS:
        if len(points) > 1 and all(cost in p.cost for p in points) and len({p.cost[cost] for p in points}) > 1:
            return cost
    return None


def pareto_front(points: Sequence[Point], cost: str) -> list[str]:
    """Return the candidates for which no other is at least as good and as cheap, and better in one of them."""
    return [points[i].candidate for i in find_undominated([(p.score, -p.cost[cost]) for p in points])]


def _read_graph(workflow: Workflow) -> tuple[list[tuple[str, str]], list[list[str]]] | None:
    """Return edges and layers of a workflow of several nodes; None if it cannot be drawn."""
    import networkx as nx

    if len(workflow.tree.get("nodes", ())) < 2:
        return None
    try:
        graph = workflow.graph
        layers = [list(layer) for layer in nx.topological_generations(graph)]
        edges = list(graph.edges)
    except (SpecError, RecursionError):
        return None
    return (edges, layers) if len(graph) > 1 else None
