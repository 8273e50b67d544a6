"""A signature that a language model answers: its prompt, its settings, and the parser of the answer."""

from __future__ import annotations

import inspect
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, get_args, get_origin

import dspy

from workbench.errors import NodeError
from workbench.lm import split_thoughts
from workbench.workflow import Field, Signature
from workbench_dspy_seam import programs as seam
from workbench_kit import answers
from workbench_kit.prompting import Nearest, plain_adapter as plain

#: Number of the draw that a module is run for. With a temperature, other numbers give other answers.
_DRAW: ContextVar[int] = ContextVar("draw", default=0)
#: Numbers for each level of nested draws.
_DRAWS = 1000


def signature(
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    instructions: str,
    descriptions: Mapping[str, str] | None = None,
) -> Any:
    """Make a DSPy signature. inputs, outputs: the type of each field. descriptions: the meaning of a field."""
    described = descriptions or {}
    fields: dict[str, Any] = {}
    for part, make in ((inputs, dspy.InputField), (outputs, dspy.OutputField)):
        for name, annotation in part.items():
            more: dict[str, Any] = {"desc": described[name]} if name in described else {}
            if make is dspy.InputField and annotation is str:
                more["IS_TYPE_UNDEFINED"] = True  # any value is shown as text
            fields[name] = (annotation, make(**more))
    new: Any = dspy.Signature
    return new(fields, instructions)


def language_model(model: str, api_base: str | None = None, api_key_env: str | None = None) -> dspy.LM:
    """Make the language model of a single node. api_key_env: the environment variable with its key."""
    settings: dict[str, Any] = {}
    if api_base:
        settings["api_base"] = api_base
    if api_key_env:
        settings["api_key"] = os.environ.get(api_key_env)
    return dspy.LM(model, **settings)


def make_request(lm: Any, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Any:
    """Return (request, keywords) of a call. settings: temperature, max_tokens, top_p, stop, rollout_id; they take
    precedence over those of the language model."""
    own = {name: value for name, value in lm.kwargs.items() if name not in seam.CLIENT_KEYS}
    body = {**own, **{name: value for name, value in settings.items() if value is not None}}
    rollout = (body.pop("rollout_id", None) or 0) + _DRAW.get() * _DRAWS
    body = {name: value for name, value in body.items() if value is not None and name != "n"}
    request = seam.make_request({"model": lm.model, "messages": messages, **body})
    return request, {"rollout_id": rollout} if rollout and body.get("temperature") else {}


def ask(lm: Any, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> tuple[str, bool]:
    """Return (answer, whether it was cut at max_tokens). lm: None for the configured one. Raises NodeError if empty."""
    lm = lm or dspy.settings.lm
    request, more = make_request(lm, messages, settings)
    return read_response(lm(request, **more))


def read_response(response: Any) -> tuple[str, bool]:
    thoughts, text = split_thoughts(response.text or "")
    cut = response.finish_reason == "length"
    if response.finish_reason == "content_filter":
        raise NodeError("refused", f"the model refused: {text[:200]!r}")
    if not text.strip() and cut:
        raise NodeError("cut", f"the answer was cut {'in its thoughts' if thoughts else 'before its first word'}")
    if not text.strip():
        raise NodeError("empty", "the model gave an empty answer")
    return text, cut


def read_signature(declared: Any) -> Signature:
    """Return the fields of a DSPy signature."""

    def fields(of: Mapping[str, Any]) -> tuple[Field, ...]:
        return tuple(
            Field(n, f.annotation, get_args(f.annotation) if get_origin(f.annotation) is Literal else ())
            for n, f in of.items()
        )

    return Signature(fields(declared.input_fields), fields(declared.output_fields))


class PlainAdapter(dspy.Adapter):
    """Instructions, allowed values, demos and inputs in as few tokens as possible.

    Args:
        written: the instructions as written; DSPy's signature removes indentation.
        show_values: list the allowed values of typed outputs.
        form: plain, or chat, json, xml for the prompt of DSPy's adapter of that name.
    """

    def __init__(self, written: str = "", show_values: bool = True, form: str = "plain"):
        super().__init__()
        self.written, self.show_values, self.form = written, show_values, form

    def system(self, declared: Any) -> str:
        text, written = declared.instructions, self.written
        if inspect.cleandoc(written).strip() == text.strip():
            text = written
        described = {
            name: field.json_schema_extra["desc"]
            for name, field in declared.fields.items()
            if field.json_schema_extra["desc"] != f"${{{name}}}"
        }
        return plain.system_text(read_signature(declared), text, described, self.show_values, form=True)

    def format(self, signature: Any, demos: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
        """Return the prompt in DSPy's form."""
        return seam.to_prompt(self.messages(signature, demos, inputs))

    def messages(self, signature: Any, demos: Sequence[Any], inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        examples = [dict(demo.items()) for demo in demos]
        if self.form != "plain":
            return seam.to_messages(seam.ADAPTERS[self.form]().format(signature, examples, dict(inputs)))
        return plain.messages(read_signature(signature), self.system(signature), examples, inputs)

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return self.read(signature, completion, cut=False)

    def read(self, signature: Any, text: str, cut: bool) -> dict[str, Any]:
        """Return the typed outputs of an answer. cut: whether it ended at max_tokens. Raises NodeError."""
        fields = read_signature(signature)
        if self.form == "plain":
            return answers.parse(fields, text, cut)[0]
        try:
            return dict(seam.ADAPTERS[self.form]().parse(signature, text))
        except (seam.AdapterParseError, ValueError, TypeError):
            if cut and not fields.outputs[-1].closed:
                raise NodeError("cut", f"the answer was cut at max_tokens: {text[:200]!r}") from None
            return answers.parse(fields, text, cut)[0]

    def __call__(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        return [self.read(signature, *ask(lm, self.messages(signature, demos, inputs), lm_kwargs))]

    async def acall(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        request, more = make_request(lm, self.messages(signature, demos, inputs), lm_kwargs)
        return [self.read(signature, *read_response(await lm.acall(request, **more)))]


class Runs:
    """Implements both of DSPy's ways to call a module, by `_run`."""

    _run: Callable[[dict[str, Any]], dspy.Prediction]

    def forward(self, **given: Any) -> dspy.Prediction:
        return self._run(given)

    async def aforward(self, **given: Any) -> dspy.Prediction:
        asyncify: Any = dspy.asyncify
        return await asyncify(self._run)(given)


class Predictor(Runs, dspy.Predict):
    """A predictor with a prompt of its own, demos chosen by the input, and a vote.

    Args:
        signature: its inputs and outputs.
        instructions: as written.
        samples: answers drawn; the most frequent last output wins.
        retrieve: number of demos shown, the nearest to the input; 0: all.
        show_values, form: see `PlainAdapter`.
        lm: a language model of its own.
        settings: temperature, max_tokens, top_p, stop.
    """

    signature: Any

    def __init__(
        self,
        signature: Any,
        instructions: str = "",
        samples: int = 1,
        retrieve: int = 0,
        show_values: bool = True,
        form: str = "plain",
        lm: Any = None,
        **settings: Any,
    ):
        super().__init__(signature, **settings)
        self.adapter = PlainAdapter(instructions, show_values, form)
        self.samples, self.retrieve, self.own_lm = samples, retrieve, lm

    def _run(self, given: dict[str, Any]) -> dspy.Prediction:
        inputs = {name: given[name] for name in self.signature.input_fields if name in given}
        given.setdefault("demos", self.demos_shown(inputs))
        if self.lm is None and self.own_lm is not None:
            given.setdefault("lm", self.own_lm)
        if self.samples == 1:
            return self._draw(given, 0)
        answers, failures = [], []
        for number in range(self.samples):
            try:
                answers.append(self._draw(given, number))
            except (NodeError, seam.LMError) as error:
                failures.append(error)
        if not answers:
            raise failures[0]
        return most_frequent(answers, list(self.signature.output_fields)[-1])

    def _draw(self, given: Mapping[str, Any], number: int) -> dspy.Prediction:
        config = dict(given.get("config", {}))
        if number:
            config["rollout_id"] = number  # another answer, bypassing DSPy's cache
        with dspy.context(adapter=self.adapter):
            return dspy.Predict.forward(self, **{**given, "config": config})

    def demos_shown(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the demos for an input, but never the input itself with its answer."""
        demos = [dict(demo.items()) for demo in self.demos]
        return [demos[i] for i in Nearest(demos, list(self.signature.input_fields)).shown(inputs, self.retrieve)]


def most_frequent(answers: Sequence[Any], field: str, weights: Sequence[float] = ()) -> Any:
    """Return the answer with the most frequent value of a field; of equals, the first. weights: default 1."""
    ballots = [json.dumps(dict(a.items()).get(field), sort_keys=True, default=str) for a in answers]
    counts = Counter[str]()
    for ballot, weight in zip(ballots, weights or [1] * len(ballots), strict=True):
        counts[ballot] += weight  # pyright: ignore[reportArgumentType]
    return answers[ballots.index(max(ballots, key=lambda b: (round(counts[b], 9), -ballots.index(b))))]


def fields_read(module: Any) -> list[str]:
    """Return the inputs of a module."""
    if not isinstance(module, dspy.Predict):
        return list(module.reads)
    signature: Any = module.signature
    return list(signature.input_fields)


def draw(module: Any, number: int, given: Mapping[str, Any]) -> Any:
    """Return the outputs of a module for the fields that it reads. Other numbers draw other answers."""
    token = _DRAW.set(_DRAW.get() * _DRAWS + number)
    try:
        return module(**{name: given[name] for name in fields_read(module)})
    finally:
        _DRAW.reset(token)
