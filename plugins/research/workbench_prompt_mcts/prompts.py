"""Prompts of the proposer: why a prompt fails, or why it works. Training examples alone are shown."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.study import Result
from workbench.workflow import Workflow, node_at, text_role
from workbench_kit.prompting import describe, show_in_place, show_results

_FAILED = (
    "For each of these failures, say why this text leads to it. Then sum up: what should it say, "
    "leave out, or say differently? Answer with a short list of changes."
)
_WORKED = (
    "All of these are right. Say what in the text makes them so and must be kept, and what could be clearer, "
    "or more general. Answer with a short list."
)


def feedback(workflow: Workflow, address: str, results: Sequence[Result], shown: int) -> list[dict[str, str]]:
    """Asks for reasons and changes. results: failures, or, where there are none, successes."""
    failed = any(r.score is not None and r.score < 1 for r in results)
    parts = [
        f"You improve {text_role(workflow, address).what}, which another language model follows.",
        describe(node_at(workflow, address)),
        show_in_place(workflow, address),
        f"How the step did with it:\n{show_results(results, shown)}",
        _FAILED if failed else _WORKED,
    ]
    return [{"role": "user", "content": "\n\n".join(parts)}]
