"""The result of a called workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import WorkbenchError
from workbench.ledger import Spend
from workbench.workflow import ExampleRun, Trace


@dataclass(frozen=True, eq=False)
class Prediction(Mapping[str, Any]):
    """The fields that the workflow wrote for one row, as a mapping and as attributes: `p["label"]`, `p.label`.

    A failed row has `failure`, its kind (`unparsed`, `refusal`, `tool`, ...), `message`, and the fields that were
    written before it failed. `cost` has the row's calls, tokens, dollars as far as prices are known, and seconds from
    start to end.
    """

    outputs: Mapping[str, Any]
    failure: str | None = None
    message: str | None = None
    cost: Spend = field(default_factory=Spend)
    trace: Trace | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None

    def __getitem__(self, name: str) -> Any:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.outputs.items())
        return f"Prediction({fields})" if self.ok else f"Prediction({fields}; failed: {self.failure}: {self.message})"

    def __getattr__(self, name: str) -> Any:
        outputs: Mapping[str, Any] = self.__dict__.get("outputs", {})  # empty during unpickling
        if name in outputs:
            return outputs[name]
        known = ", ".join(outputs) or "none"
        failed = f"; it failed: {self.failure}: {self.message}" if self.__dict__.get("failure") else ""
        raise AttributeError(f"the prediction has no field '{name}'; it has: {known}{failed}")


class PredictionError(WorkbenchError):
    """A called workflow failed on its input. `prediction` holds the partial result."""

    def __init__(self, prediction: Prediction):
        super().__init__(f"{prediction.failure}: {prediction.message}")
        self.prediction = prediction


def prediction_of(run: ExampleRun, trace: bool) -> Prediction:
    """Return the result of a row. trace: keep its spans."""
    calls = run.trace.calls
    cost = Spend(
        len(calls),
        prompt_tokens=sum(call.response.prompt_tokens for call in calls),
        completion_tokens=sum(call.response.completion_tokens for call in calls),
        usd=sum(call.usd for call in calls),
        seconds=run.seconds,
    )
    return Prediction(dict(run.prediction), run.failure, run.message, cost, run.trace if trace else None)
