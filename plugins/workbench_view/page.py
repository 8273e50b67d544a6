"""The report as one page of HTML, which holds all that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import SpecError
from workbench.study import find_undominated
from workbench_view import plots
from workbench_view.facts import Facts, Point
from workbench_view.text_diff import describe_change

if TYPE_CHECKING:
    from jinja2 import Environment

    from workbench.workflow import Workflow

_HERE = Path(__file__).parent
#: Costs that a candidate may be compared by, the first that differs.
_COSTS = ("usd", "tokens", "calls", "latency")


def write_page(facts: Facts) -> str:
    """The page. Texts of models and rows are escaped: they are shown, and never run."""
    template = _environment().get_template("report.html")
    return template.render(
        facts=facts,
        report=facts.report,
        changes=[describe_change(*change) for change in facts.changes],
        pictures=draw_pictures(facts),
        style=(_HERE / "assets" / "style.css").read_text(encoding="utf-8"),
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"signed": lambda value: f"{value:+.3f}", "score": format_score, "value": _value}
    return made


def format_score(value: float | None) -> str:
    """A score as it is shown; a dash for none."""
    return "–" if value is None else f"{value:.3f}"


def _value(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def draw_pictures(facts: Facts) -> dict[str, str]:
    """The plots that the run has data for, by name."""
    from markupsafe import Markup

    report, found = facts.report, dict[str, str]()
    if facts.sides is not None:
        gain = report["gain"]
        found["proof"] = plots.draw_proof(gain["diff"], gain["ci95"], facts.noise, gain=gain["shown"])
    winner, baseline = report["best"]["workflow"], report["baseline"]["workflow"]
    if len(facts.points) > 1:
        found["course"] = plots.draw_course(facts.points, winner)
    if cost := _telling_cost(facts.points):
        found["tradeoff"] = plots.draw_tradeoff(facts.points, cost, pareto_front(facts.points, cost), winner, baseline)
    if roles := report["spent"].get("by_role"):
        found["bill"] = plots.draw_bill(roles, "usd" if any(spent["usd"] for spent in roles.values()) else "calls")
    for name, workflow in (("before", facts.before), ("after", facts.after)):
        if workflow is not None and (drawn := _draw_graph(workflow, facts)) is not None:
            found[name] = drawn
    return {name: Markup(svg) for name, svg in found.items()}


def _telling_cost(points: Sequence[Point]) -> str | None:
    """A cost by which candidates differ."""
    for cost in _COSTS:
        if len(points) > 1 and all(cost in p.cost for p in points) and len({p.cost[cost] for p in points}) > 1:
            return cost
    return None


def pareto_front(points: Sequence[Point], cost: str) -> list[str]:
    """The candidates that no other is both at least as good and as cheap as, and better in one."""
    return [points[i].candidate for i in find_undominated([(p.score, -p.cost[cost]) for p in points])]


def _draw_graph(workflow: Workflow, facts: Facts) -> str | None:
    """The graph of a workflow of several nodes; None where its code would have to be loaded to know it."""
    import networkx as nx

    from workbench.user_code import CodeRefused, without_user_code

    try:
        with without_user_code("names"):
            graph = workflow.graph
            layers = [list(layer) for layer in nx.topological_generations(graph)]
            edges = list(graph.edges)
    except (SpecError, CodeRefused, RecursionError):
        return None
    changed = {address.split(".")[1] for address, _, _ in facts.changes if address.startswith("nodes.")}
    return plots.draw_graph(edges, layers, sorted(changed)) if len(graph) > 1 else None
