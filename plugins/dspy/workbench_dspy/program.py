"""A workflow as a DSPy program: one predictor for each `predict` node, run by workbench's runtime.

DSPy optimizes exactly what workbench evaluates: the same prompts, adapters and calls. DSPy changes instructions and
demos of the predictors; they are read back as a patch of the workflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dspy

from workbench.errors import LMError, NodeError, SpecError
from workbench.task import Example
from workbench.workflow import EXCHANGE, ExampleRun, Patch, Signature, Trace, Workflow, learnable_addresses, node_at
from workbench_dspy.bridge import Bridge
from workbench_kit.prompting import default_instructions


def dspy_signature(signature: Signature, instructions: str) -> Any:
    """Convert a signature to a class of DSPy's."""
    fields: dict[str, Any] = {f.name: (f.type, dspy.InputField()) for f in signature.inputs}
    fields |= {f.name: (f.type, dspy.OutputField()) for f in signature.outputs}
    make: Any = dspy.Signature
    return make(fields, instructions or default_instructions(signature))


def find_predictor_nodes(workflow: Workflow) -> dict[str, str]:
    """Map attributes of the program to addresses of nodes, for each node with a signature, instructions and demos."""
    addresses = [a.removesuffix(".demos") for a in learnable_addresses(workflow, "demos")]
    return {
        a.removeprefix("nodes.").replace(".", "_"): a
        for a in addresses
        if hasattr(node_at(workflow, f"{a}.demos"), "signature")
    }


class WorkflowProgram(dspy.Module):
    """A workflow as a DSPy program. Compile it with any DSPy optimizer, then call `patched()`."""

    def __init__(self, bridge: Bridge, workflow: Workflow):
        super().__init__()
        self.bridge, self.workflow = bridge, workflow
        self.addresses = find_predictor_nodes(workflow)
        for name, address in self.addresses.items():
            node: Any = node_at(workflow, f"{address}.demos")
            predictor = dspy.Predict(dspy_signature(node.signature, node.config.instructions))
            predictor.demos = [dspy.Example(**demo) for demo in node.config.demos]
            setattr(self, name, predictor)

    def patched(self) -> Workflow:
        """Return the workflow with the current instructions and demos of the predictors."""
        values: dict[str, Any] = {}
        for name, address in self.addresses.items():
            predictor, node = getattr(self, name), node_at(self.workflow, f"{address}.demos")
            before: Any = node.config
            text = str(predictor.signature.instructions)
            written = before.instructions or default_instructions(node.signature)  # type: ignore[attr-defined]
            if text != written:
                values[f"{address}.instructions"] = text
            kept = (*node.inputs, *node.outputs, EXCHANGE)
            demos = [_demo(d, kept) for d in predictor.demos]
            if demos != [_demo(d, kept) for d in before.demos]:
                values[f"{address}.demos"] = demos
        return self.workflow.patched(Patch(values, note=f"by DSPy: {', '.join(values) or 'nothing changed'}"))

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Run the workflow on one example. A failure is a prediction with `workbench_failure`, which scores 0."""
        workflow, replica = self.patched(), 0
        settings = getattr(dspy.settings.lm, "kwargs", {})  # in its context, as it bootstraps in rounds
        rollout = settings.get("rollout_id")
        if rollout is not None:  # DSPy wants another draw, at this temperature
            replica = int(rollout) + 1
            temperature = float(settings.get("temperature") or 1.0)
            hot = {f"{a}.decoding.temperature": temperature for a in self.addresses.values()}
            workflow = workflow.patched({k: v for k, v in hot.items() if _takes(workflow, k)})
        study = self.bridge.study

        async def run() -> ExampleRun:
            if rollout is None:
                study.progress.propose(workflow, study.name)
            return await study.run(workflow, Example("dspy", inputs), replica)

        outcome = self.bridge.wait(run)
        self._trace(outcome)
        extra = {"workbench_failure": f"{outcome.failure}: {outcome.message}"} if outcome.failure else {}
        return dspy.Prediction(**dict(outcome.prediction), **extra)

    def _trace(self, outcome: ExampleRun) -> None:
        """Report the inputs and outputs of each predictor to DSPy, whose optimizers learn from them."""
        trace = dspy.settings.trace
        if trace is None:
            return
        by_path = {address.removeprefix("nodes."): name for name, address in self.addresses.items()}
        for span in outcome.trace.spans:
            if span.node in by_path and span.outputs:
                predictor = getattr(self, by_path[span.node])
                demo = node_at(self.workflow, f"nodes.{span.node}.demos").demo(span)
                between = {EXCHANGE: demo[EXCHANGE]} if EXCHANGE in demo else {}
                trace.append((predictor, dict(span.inputs), dspy.Prediction(**dict(span.outputs), **between)))


def _takes(workflow: Workflow, address: str) -> bool:
    with suppress(SpecError, KeyError):
        return workflow.patched({address: 1.0}) is not None
    return False


def _demo(demo: Any, names: Sequence[str]) -> dict[str, Any]:
    values = demo.toDict() if hasattr(demo, "toDict") else dict(demo)
    return json.loads(json.dumps({n: values[n] for n in names if n in values}, default=str))


class Rows:
    """Rows as DSPy's examples, and back. An example holds the inputs and, for demos, the labels of outputs."""

    def __init__(self, program: WorkflowProgram, examples: Sequence[Example], targets: Mapping[str, str]):
        self.inputs = program.workflow.input_fields
        outputs = [o for a in program.addresses.values() for o in node_at(program.workflow, f"{a}.demos").outputs]
        self.by_inputs: dict[str, Example] = {}
        self.rows = []
        for example in examples:
            values = {n: example[n] for n in self.inputs if n in example}
            self.by_inputs[self._key(values)] = example
            labels = {
                o: example[targets.get(o, o)] for o in outputs if targets.get(o, o) in example and o not in values
            }
            self.rows.append(dspy.Example(**values, **labels).with_inputs(*values))

    def example(self, gold: Any) -> Example:
        values = gold.toDict()
        return self.by_inputs[self._key({n: values[n] for n in self.inputs if n in values})]

    @staticmethod
    def _key(values: Mapping[str, Any]) -> str:
        return json.dumps(values, sort_keys=True, default=str)


def make_metric(bridge: Bridge, rows: Rows, feedback: bool = False) -> Any:
    """Return the metric in DSPy's form: a number, or, with feedback, a prediction of score and words (for GEPA)."""

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        failure = getattr(pred, "workbench_failure", None) if pred is not None else "no prediction"
        if failure:
            value, words = 0.0, str(failure)
        else:
            try:
                row, values, empty = rows.example(gold), dict(pred or {}), Trace("dspy")
                score = bridge.wait(lambda: bridge.study.score(row, values, empty))
                value, words = (
                    score.value,
                    score.feedback or ("right" if score.value == 1 else f"score {score.value:.2f}"),
                )
            except (LMError, NodeError) as error:
                value, words = 0.0, str(error)
        return dspy.Prediction(score=value, feedback=words) if feedback else value

    return metric
