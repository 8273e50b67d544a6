"""The metric's score of an output of any node, as a reward (`{kind: metric, field: F}`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from workbench import Study, Workflow
from workbench.errors import LMError, SpecError, suggest
from workbench.runtime import ends_run
from workbench.study import kind_of_scoring
from workbench_training.rewards import RewardTerm, Rollout


async def score_output(study: Study, rollout: Rollout, name: str, metric: str = "") -> float | None:
    """The metric's score of what a node wrote last to a field, as if it were the workflow's only output. 0 where it
    wrote nothing that the metric can score; None where the metric has no result (`FailureKind.no_result`), as where a
    judge gave no grade.

    name: the field; "" for the prediction as it is. metric: of the file's list, by its name; "" for the first.
    """
    result, prediction = rollout.result, dict(rollout.result.prediction)
    if result.trace is None:
        return 0.0
    if name:
        (output,) = study.workflow.output_fields
        written = [span.outputs[name] for span in result.trace.spans if name in span.outputs]
        if not written:
            return 0.0
        prediction[output] = written[-1]
    try:
        if metric:
            return (await study.evaluator.score(rollout.example, prediction, result.trace, metric)).value
        return (await study.score(rollout.example, prediction, result.trace)).value
    except (
        Exception,
        SystemExit,
        asyncio.CancelledError,
    ) as error:  # as in an evaluation, what a metric raises is this rollout's failure
        if ends_run(error, study.ledger) or (isinstance(error, LMError) and error.kind == "auth"):
            raise
        return None if kind_of_scoring(error).no_result else 0.0


def check_metrics(study: Study, terms: Sequence[RewardTerm]) -> None:
    """A term may name a further metric of the file. Raises SpecError, with a path within the terms."""
    for index, term in enumerate(terms):
        path = (index, "metric")
        if term.metric and term.kind != "metric":
            raise SpecError(f"`metric` is for terms of the kind metric, not {term.kind}", path=path, hint="Remove it.")
        if term.metric and term.metric not in (known := study.evaluator.named):
            raise SpecError(
                f"the file lists no further metric '{term.metric}'",
                path=path,
                hint=f"Known: {', '.join(known)}."
                if known
                else f"Write the top-level `metric:` as a list: the first one is the score, and {term.metric} another.",
            )
        if term.metric and getattr(study.evaluator.named[term.metric], "needs_lm", False):
            raise SpecError(
                f"'{term.metric}' asks a model, which no estimate would count here",
                path=path,
                hint="Write {kind: judge, rubric: ...}.",
            )


def check_outputs(workflow: Workflow, terms: Sequence[RewardTerm]) -> None:
    """A metric's term may name the output of any node. Raises SpecError, with a path within the terms."""
    written = workflow.last_writers()
    for index, term in enumerate(terms):
        if term.kind != "metric" or not term.field:
            continue
        if term.field not in written:
            raise SpecError(
                f"no node writes '{term.field}'", path=(index, "field"), hint=suggest(term.field, sorted(written))
            )
        if len(workflow.output_fields) != 1:
            raise SpecError(
                f"'{term.field}' cannot be scored in place of the workflow's output: it has "
                f"{len(workflow.output_fields)}, {', '.join(workflow.output_fields)}",
                path=(index, "field"),
                hint="Leave out `field`, or let the last node write one field.",
            )
