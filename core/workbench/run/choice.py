"""Which optimizers run where a file names none, and what is not searched."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.plugins import plugins
from workbench.spec import defaults
from workbench.study import Optimizer
from workbench.task import Task
from workbench.workflow import learnable_addresses


def choose(task: Task) -> dict[str, str]:
    """The names of the optimizers for a file that names none, each with the reason."""
    spec, workflow = task.spec, task.workflow
    # `search:` lists what may change: where there is one, examples are searched only if it names them.
    rest = "search" if spec.search else "demos" if learnable_addresses(workflow, "demos") else None
    steps = [[rest]] if rest else []
    if "proposer" in spec.roles and learnable_addresses(workflow, "text"):
        mixed = ["mixed"] if len(spec.objectives) == 1 else []  # its individuals are compared by score alone
        steps = [["texts"], [*mixed, *([rest] if rest else [])]]
    return defaults.choose_optimizers(steps, plugins().names("optimizers"))


def explain_choice(task: Task, chosen: Sequence[str]) -> str:
    """What was chosen for a file that names no optimizer, and why."""
    reasons = choose(task)
    if list(reasons) != list(chosen):  # other plugins are loaded now, or another version chose
        return f"The file names no optimizer. Chosen when the run began: {', '.join(chosen)}."
    return f"The file names no optimizer. Chosen: {'; '.join(f'{n}, since {why}' for n, why in reasons.items())}."


def search_warnings(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[str]:
    """A warning where no optimizer searches what the file lists under `search:`."""
    if not task.spec.search or any(optimizer.reads_search() for _, optimizer in optimizers):
        return []
    named = ", ".join(dict.fromkeys(name for name, _ in optimizers))
    return [
        f"`search:` is not searched: {named} does not read it. Add an optimizer that does to `optimize:`, e.g. "
        f"{defaults.OPTIMIZERS['search'][1][0]}, or remove `search:`"
    ]
