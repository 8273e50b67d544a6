"""Spectrum-based fault localization: elements that occur in failed runs more often than in passed ones. No model is
asked.

The formulas are those of program spectra: Ochiai (R. Abreu et al., On the Accuracy of Spectrum-based Fault
Localization, 2007), Tarantula (J. Jones, M. Harrold, 2005), DStar (W. Wong et al., The DStar Method for Effective
Software Fault Localization, 2014). Lines of code are replaced by nodes, transitions between them, tools, states,
errors, and short outputs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.workflow import Span, Trace

#: Outputs up to this many characters are elements: labels and choices, but not texts.
SHORT = 40

#: Minimum number of failed runs for an element to count.
MIN_FAILED = 2


@dataclass(frozen=True)
class Element:
    """Something that occurs in a run. kind: node, transition, tool, state, error or output."""

    kind: str
    node: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.node}" + (f" {self.value}" if self.value else "")


@dataclass(frozen=True)
class Counts:
    """Numbers of failed and passed runs with and without an element."""

    failed_with: int
    failed_without: int
    passed_with: int
    passed_without: int


def ochiai(c: Counts) -> float:
    """Compute ef / sqrt((ef + nf) (ef + ep)), from 0 to 1."""
    below = (c.failed_with + c.failed_without) * (c.failed_with + c.passed_with)
    return c.failed_with / math.sqrt(below) if below else 0.0


def tarantula(c: Counts) -> float:
    """Compute (ef/F) / (ef/F + ep/P), from 0 to 1."""
    failed, passed = c.failed_with + c.failed_without, c.passed_with + c.passed_without
    in_failed = c.failed_with / failed if failed else 0.0
    in_passed = c.passed_with / passed if passed else 0.0
    return in_failed / (in_failed + in_passed) if in_failed + in_passed else 0.0


def dstar(c: Counts) -> float:
    """Compute ef^2 / (ep + nf), infinite for an element of all failed runs and no passed one."""
    below = c.passed_with + c.failed_without
    if not below:
        return math.inf if c.failed_with else 0.0
    return c.failed_with**2 / below


FORMULAS: Mapping[str, Callable[[Counts], float]] = {"ochiai": ochiai, "tarantula": tarantula, "dstar": dstar}


@dataclass(frozen=True)
class Suspect:
    """An element or a node with its suspiciousness. element: the one that makes a node suspicious."""

    node: str
    suspiciousness: float
    element: Element
    counts: Counts


def elements_of(trace: Trace) -> frozenset[Element]:
    """Collect the elements of a run."""
    return elements_of_spans([_as_mapping(span) for span in trace.spans])


def elements_of_spans(spans: Sequence[Mapping[str, Any]]) -> frozenset[Element]:
    """Collect the elements of a run from its stored spans (`Span.as_dict`)."""
    found, before = set[Element](), ""
    for span in spans:
        node, agent = str(span["node"]), span.get("agent")
        name = f"{node}.{agent}" if agent else node
        found.add(Element("node", name))
        if before:
            found.add(Element("transition", name, f"after {before}"))
        before = name
        if span.get("error"):
            found.add(Element("error", name, str(span["error"]).partition(":")[0]))
        for key, value in (span.get("outputs") or {}).items():
            if isinstance(value, str | int | bool) and len(str(value)) <= SHORT:
                found.add(Element("output", name, f"{key}={value}"))
        found.update(_noted(name, span.get("notes") or {}))
    return frozenset(found)


def _noted(name: str, notes: Mapping[str, Any]) -> set[Element]:
    """Collect the tools, the tools in error, the states and the branch that a node noted."""
    found = set[Element]()
    for tool in notes.get("tools") or ():
        found.add(Element("tool", name, str(tool["name"])))
        if str(tool["result"]).startswith("error"):
            found.add(Element("error", name, f"of {tool['name']}"))
    path = [str(state) for state in notes.get("path") or ()]
    found |= {Element("state", name, state) for state in path}
    found |= {Element("transition", name, f"{a} to {b}") for a, b in itertools.pairwise(path)}
    return found | ({Element("state", name, f"case {notes['case']}")} if "case" in notes else set[Element]())


def _as_mapping(span: Span) -> Mapping[str, Any]:
    return {"node": span.node, "agent": span.agent, "outputs": span.outputs, "notes": span.notes, "error": span.error}


def rank_elements(
    passed: Sequence[Collection[Element]], failed: Sequence[Collection[Element]], formula: str = "ochiai"
) -> list[Suspect]:
    """Rank the elements of failed runs, the most suspicious first. Elements of all runs are uninformative and left out.

    Args:
        passed: the elements of each run that passed.
        failed: the elements of each run that failed.
        formula: ochiai, tarantula or dstar.
    """
    in_passed = Counter(element for run in passed for element in run)
    in_failed = Counter(element for run in failed for element in run)
    found: list[Suspect] = []
    for element, n in in_failed.items():
        counts = Counts(n, len(failed) - n, in_passed[element], len(passed) - in_passed[element])
        if n >= min(MIN_FAILED, len(failed)) and (counts.failed_without or counts.passed_without):
            found.append(Suspect(element.node, FORMULAS[formula](counts), element, counts))
    return sorted(found, key=lambda s: (-s.suspiciousness, -s.counts.failed_with, str(s.element)))


def rank_nodes(
    passed: Sequence[Collection[Element]],
    failed: Sequence[Collection[Element]],
    formula: str = "ochiai",
    order: Sequence[str] = (),
) -> list[Suspect]:
    """Rank the nodes of failed runs by their most suspicious element.

    A node after the faulty one works on wrong inputs, so it is equally suspicious: on a tie, the earlier comes first.
    Nodes without evidence against them come last.

    Args:
        passed, failed, formula: as for `rank_elements`.
        order: the nodes in the order in which they run.
    """
    best: dict[str, Suspect] = {}
    for suspect in rank_elements(passed, failed, formula):
        best.setdefault(suspect.node, suspect)
    runs = defaultdict[str, list[int]](lambda: [0, 0])
    for side, group in enumerate((failed, passed)):
        for run in group:
            for node in {e.node for e in run}:
                runs[node][side] += 1
    for node, (n, m) in runs.items():
        if node not in best and n:
            counts = Counts(n, len(failed) - n, m, len(passed) - m)
            best[node] = Suspect(node, 0.0, Element("node", node), counts)
    place = {name: i for i, name in enumerate(order)}
    return sorted(best.values(), key=lambda s: (-s.suspiciousness, place.get(s.node, len(place)), s.node))
