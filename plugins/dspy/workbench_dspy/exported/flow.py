"""Modules that run other modules: a flow of data between them, a branch, an ensemble, rounds of improvement."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from workbench.errors import NodeError
from workbench.workflow import Field
from workbench_dspy.exported.predictor import PlainAdapter, Runs, ask, draw, fields_read, most_frequent
from workbench_dspy_seam.programs import ADAPTERS, LMError
from workbench_kit.answers import convert, read_score
from workbench_kit.prompting import plain_adapter as plain

#: Failures of a module. If others can replace it, the program continues without it.
FAILURES = (NodeError, LMError)


@dataclass(frozen=True)
class Step:
    """A module of a flow.

    module: the attribute that holds it. reads: for each field, the steps that may write it, of which the first one that
    did counts; without any, it is an input of the program. optional: the program continues if it fails.
    """

    name: str
    module: str
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    optional: bool = False


class Module(dspy.Module):
    """A DSPy module of the user's. reads: its input fields. form: chat, json, xml or plain, the form of its predictors'
    prompts."""

    def __init__(self, module: Any, reads: Sequence[str], form: str = "chat"):
        super().__init__()
        self.module, self.reads, self.form = module, list(reads), form

    def forward(self, **inputs: Any) -> dspy.Prediction:
        with dspy.context(adapter=PlainAdapter() if self.form == "plain" else ADAPTERS[self.form]()):
            return self.module(**inputs)


class Flow(Runs, dspy.Module):
    """Runs its steps in order. A subclass sets `steps`, and a module for each.

    rename: the caller's name of an inner field. order: names of the steps in the order of the workflow file, if it
    differs; of several steps that write a field, the last one there counts.
    """

    steps: Sequence[Step] = ()
    order: Sequence[str] = ()

    def __init__(
        self,
        steps: Sequence[Step] = (),
        modules: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
        order: Sequence[str] = (),
    ):
        super().__init__()
        self.rename = dict(rename or {})
        if steps:
            self.steps, self.order = steps, order
        for name, module in (modules or {}).items():
            setattr(self, name, module)

    def _run(self, given: dict[str, Any]) -> dspy.Prediction:
        inner = {outer: name for name, outer in self.rename.items()}
        given = {inner.get(name, name): value for name, value in given.items()}
        written: dict[str, dict[str, Any]] = {}
        for step in self.steps:
            try:
                inputs = self._inputs(step, given, written)
                written[step.name] = dict(getattr(self, step.module)(**inputs).items())
            except Exception:
                if not step.optional:
                    raise
        return dspy.Prediction(**{self.rename.get(n, n): value for n, value in self._merged(written).items()})

    @property
    def reads(self) -> list[str]:
        names = [name for step in self.steps for name, writers in step.reads.items() if not writers]
        return list(dict.fromkeys(self.rename.get(name, name) for name in names))

    def _inputs(self, step: Step, given: Mapping[str, Any], written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for name, writers in step.reads.items():
            writer = next((w for w in writers if name in written.get(w, ())), None)
            if writer is None and name not in given:
                raise NodeError("data", f"'{step.name}' reads '{name}', and there is only: {', '.join(given)}")
            inputs[name] = given[name] if writer is None else written[writer][name]
        return inputs

    def _merged(self, written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return all fields. Of several writers the last one counts, or the step that refined its output."""
        names = self.order or [step.name for step in self.steps]
        writers: dict[str, list[str]] = {}
        for name in names:
            for found in written.get(name, {}):
                writers.setdefault(found, []).append(name)
        return {found: written[self._last(found, wrote)][found] for found, wrote in writers.items()}

    def _last(self, name: str, wrote: Sequence[str]) -> str:
        reads = {step.name: step.reads for step in self.steps}
        last, rest = wrote[-1], list(wrote[:-1])
        while (refiner := next((n for n in rest if last in reads[n].get(name, ())), None)) is not None:
            last = refiner
            rest.remove(refiner)
        return last


class Branch(dspy.Module):
    """Runs the case named by the value of the field `on`."""

    def __init__(self, on: str, cases: Mapping[str, Any], default: Any = None):
        super().__init__()
        self.on, self.cases, self.default = on, dict(cases), default

    def forward(self, **given: Any) -> dspy.Prediction:
        value = str(given[self.on])
        plain = {name.casefold(): name for name in self.cases}
        case = (
            self.cases.get(value if value in self.cases else plain.get(value.strip().casefold(), value)) or self.default
        )
        if case is None:
            raise NodeError("branch", f"no case for {self.on} = {value[:80]!r} and no default")
        return draw(case, 0, given)

    @property
    def reads(self) -> list[str]:
        cases = [*self.cases.values(), *([self.default] if self.default is not None else [])]
        return list(dict.fromkeys([self.on, *(name for case in cases for name in fields_read(case))]))


class Ensemble(dspy.Module):
    """Runs members several times. A vote on the field, or a judge, picks the answer.

    judge: instructions of the judge; None for a vote. settings: of the judge's language model. weights: of each
    member's vote; default: 1.
    """

    def __init__(
        self,
        of: Sequence[Any],
        samples: int,
        field: str,
        judge: str | None = None,
        judge_lm: Any = None,
        settings: Mapping[str, Any] | None = None,
        weights: Sequence[float] = (),
    ):
        super().__init__()
        self.of, self.samples, self.field = list(of), samples, field
        self.weights = list(weights) or [1] * len(self.of)
        self.judge, self.judge_lm, self.settings = judge, judge_lm, dict(settings or {})

    def forward(self, **given: Any) -> dspy.Prediction:
        answers, weights, failures = [], [], []
        for number in range(self.samples):
            for member, weight in zip(self.of, self.weights, strict=True):
                try:
                    answers.append(draw(member, number, given))
                    weights.append(weight)
                except FAILURES as error:
                    failures.append(error)
        if not answers:
            raise failures[0]
        if self.judge is None or len(answers) == 1:
            return most_frequent(answers, self.field, weights)
        task = "\n".join(f"{name}: {value}" for name, value in given.items())
        shown = [json.dumps(dict(a.items()), ensure_ascii=False, default=str) for a in answers]
        listed = "\n".join(f"{i + 1}. {text}" for i, text in enumerate(shown))
        messages = [{"role": "system", "content": self.judge}, {"role": "user", "content": f"{task}\n\n{listed}"}]
        text, _ = ask(self.judge_lm, messages, self.settings)
        try:
            return answers[convert(Field("answer", values=tuple(range(1, len(answers) + 1))), text)[0] - 1]
        except NodeError:
            return answers[0]

    @property
    def reads(self) -> list[str]:
        return list(dict.fromkeys(name for member in self.of for name in fields_read(member)))


class Reflect(dspy.Module):
    """Answers, has the answer criticized and improved, and keeps the one with the best score.

    Args:
        of: gives the answer.
        improve: the same with the inputs `earlier_answer` and `criticism`.
        rounds: of improvement.
        samples: answers drawn in each round.
        verifier: gives `score` in [0, 1] and maybe `feedback`; None: the last answer counts.
        critic: instructions of the critic; empty: use only the verifier's feedback.
        lm, settings: of the critic.
    """

    def __init__(
        self,
        of: Any,
        improve: Any,
        rounds: int,
        samples: int,
        verifier: Any,
        critic: str,
        outputs: Sequence[str],
        lm: Any = None,
        settings: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.of, self.improve, self.verifier, self.outputs = of, improve, verifier, outputs
        self.rounds, self.samples, self.critic = rounds, samples, critic
        self.lm, self.settings = lm, dict(settings or {})

    def forward(self, **given: Any) -> dspy.Prediction:
        checks: list[str | None] = []  # the failure of each check
        best, score, feedback = self._round(self.of, given, 0, checks)
        failed: list[str] = []
        for number in range(1, self.rounds + 1):
            if score is not None and score >= 1.0:
                break
            criticism = self._criticism(given, best, score, feedback, number)
            if not criticism:
                break
            criticism = "\n".join([criticism, *(f"Tried, and no better: {shown}" for shown in failed)])
            more = {**given, "earlier_answer": self._shown(best), "criticism": criticism}
            try:
                answer, new, told = self._round(self.improve, more, number, checks)
            except FAILURES:
                continue  # the existing answer is better than none
            if score is None or new is None or new > score:
                best, score, feedback, failed = answer, new, told, []
            else:
                failed = list(dict.fromkeys([*failed, self._shown(answer)]))
        if checks and None not in checks:
            raise NodeError("verifier", f"the verifier failed on every answer: {min(filter(None, checks))}")
        return best

    @property
    def reads(self) -> list[str]:
        return fields_read(self.of)

    def _round(self, module: Any, given: Mapping[str, Any], number: int, checks: list[str | None]) -> Any:
        """Return (answer, score, feedback) of the best of a round."""
        found, failures = [], []
        for sample in range(self.samples):
            try:
                found.append(self._checked(module, given, number * self.samples + sample, checks))
            except FAILURES as error:
                failures.append(error)
        if not found:
            raise failures[0]
        return max(found, key=lambda one: one[1] or 0.0)

    def _checked(self, module: Any, given: Mapping[str, Any], number: int, checks: list[str | None]) -> Any:
        answer = draw(module, number, given)
        if self.verifier is None:
            return answer, None, ""
        try:
            found = draw(self.verifier, number, {**given, **dict(answer.items())})
        except FAILURES as error:  # e.g. code that fails on a malformed answer: that answer is worth nothing
            checks.append(str(error))
            return answer, 0.0, str(error)
        checks.append(None)
        return answer, *read_score(dict(found.items()))

    def _criticism(self, given: Mapping[str, Any], answer: Any, score: Any, feedback: str, number: int) -> str:
        """Ask what to fix; empty if nothing is found."""
        if not self.critic:
            return feedback or f"The score is {score:.2f}."
        task = "\n".join(f"{n}: {plain.as_text(given[n])}" for n in self.reads)
        parts = [task, f"The answer:\n{self._shown(answer)}"]
        if score is not None:
            parts.append(f"A check gives it {score:.2f}. {feedback}".strip())
        messages = [{"role": "system", "content": self.critic}, {"role": "user", "content": "\n\n".join(parts)}]
        try:
            said = ask(self.lm, messages, {**self.settings, "rollout_id": number})[0].strip()
        except NodeError:
            said = ""
        except FAILURES:
            return ""
        return "" if re.fullmatch(r"(?is)\W*none\b.{0,3}", said) else said or feedback

    def _shown(self, answer: Any) -> str:
        return plain.outputs_text(self.outputs, dict(answer.items()))
