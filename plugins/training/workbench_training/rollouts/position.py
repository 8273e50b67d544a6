"""A checkpoint of the study's state for long searches: its position in the budget, and known scores.

Without it, a resumed run replays its whole past from the journal. An optimizer with checkpoints of its own stores
`read_position` in each. After a kill, `restore_position` counts the earlier spending, and the optimizer continues from
its checkpoint. From there on the journal answers the calls that the first run made. `recall_evaluation` makes earlier
candidates known again.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench.errors import StoreError
from workbench.ledger import Spend

if TYPE_CHECKING:
    from workbench.study import Evaluation, Study
    from workbench.workflow import Workflow

#: Bytes of a call's key that are stored to remember it (`Ledger.touched`).
_KEY_BYTES = 8


def read_position(study: Study) -> dict[str, Any]:
    """Return the position of the run as JSON values: its spending so far, and the calls that are paid."""
    ledger, evaluator = study.ledger, study.evaluator
    return {
        "spent": asdict(ledger.spent),
        "paid": asdict(ledger.paid),
        "reused": asdict(ledger.reused),
        "by_role": {role: asdict(spend) for role, spend in sorted(ledger.by_role.items())},
        "largest_prompt": dict(sorted(ledger.largest_prompt.items())),
        "retries": ledger.retries,
        "longer_prompts": dict(sorted(ledger.longer_prompts.items())),
        "judged": evaluator.judged,
        "judging": asdict(evaluator.judging_spent),
        "touched": base64.b64encode(b"".join(sorted(ledger.touched))).decode("ascii"),
    }


def restore_position(study: Study, position: Mapping[str, Any]) -> None:
    """Set the spending to that of a stored position, in place of the spending that this process replayed so far.

    Raises:
        StoreError: `read_position` did not write the position.
    """
    ledger, evaluator = study.ledger, study.evaluator
    try:
        spends = {name: _spend(position[name]) for name in ("spent", "paid", "reused", "judging")}
        by_role = {str(role): _spend(found) for role, found in position["by_role"].items()}
        largest = {str(role): int(_amount(n)) for role, n in position["largest_prompt"].items()}
        longer = {str(model): _amount(factor) for model, factor in position["longer_prompts"].items()}
        retries, judged = int(_amount(position["retries"])), int(_amount(position["judged"]))
        keys = base64.b64decode(position["touched"], validate=True)
        if len(keys) % _KEY_BYTES:
            raise ValueError("its list of calls is cut")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"a checkpoint of this run is damaged ({type(error).__name__}: {error})") from error
    ledger.spent, ledger.paid, ledger.reused = spends["spent"], spends["paid"], spends["reused"]
    ledger.by_role.clear()
    ledger.by_role.update(by_role)
    ledger.largest_prompt = largest
    ledger.retries, ledger.longer_prompts = retries, longer
    ledger.touched = {keys[i : i + _KEY_BYTES] for i in range(0, len(keys), _KEY_BYTES)}
    evaluator.judged, evaluator.judging_spent = judged, spends["judging"]


async def recall_evaluation(study: Study, workflow: Workflow) -> Evaluation | None:
    """Make a candidate known again that an earlier process of this run evaluated on val. Calls nothing.

    Returns:
        The stored evaluation; None if there is none.
    """
    found = study.progress.stored(workflow) if study.progress.stored else None
    if found is not None:
        study.progress.propose(workflow, study.name)
        await study.record(found)
    return found


def _spend(values: Mapping[str, Any]) -> Spend:
    calls, cached, prompt, completion = (
        int(_amount(values[name])) for name in ("calls", "cached", "prompt_tokens", "completion_tokens")
    )
    return Spend(calls, cached, prompt, completion, float(_amount(values["usd"])), float(_amount(values["seconds"])))


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.40} is not an amount")
    return value
