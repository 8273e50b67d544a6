"""The `predict` node: render a signature, ask, parse, vote."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.base.distribution import package_folder, pip_install
from workbench.errors import Defect, LMError, NodeError, SpecError
from workbench.lm import Response
from workbench.runtime import Context
from workbench.spec import lm_spec
from workbench.workflow import (
    Field as SignatureField,
    NodeConfig,
    Signature,
    SignatureNode,
    Surroundings,
    parse_signature,
)
from workbench_kit import answers
from workbench_kit.prompting import (
    NAMED_TYPES,
    NamedTypes,
    Nearest,
    as_urls,
    check_said,
    image_inputs,
    load_types,
    plain_adapter as plain,
    prompt_defects as prompts,
    resolve_image,
    user_content,
)

#: Minimum number of words that adapters put around the value of each field.
_MARKERS = {"plain": 0, "chat": 3, "json": 1, "xml": 2}


class Decoding(NodeConfig):
    """Sampling settings of an answer."""

    temperature: float | None = Field(None, ge=0, le=2, description="0 if not given; 0.7 where samples > 1")
    top_p: float | None = Field(None, gt=0, le=1, description="nucleus sampling")
    max_tokens: int | None = Field(None, ge=1, description="512; a model that thinks gets 8192 more")


class PredictConfig(NodeConfig):
    """Settings of a `predict` node."""

    signature: str = Field(description="inputs and outputs, e.g. \"text -> label: Literal['a', 'b']\"")
    instructions: str = Field("", description="what to do, in words")
    demos: list[dict[str, Any]] = Field(default_factory=list, description="worked examples: inputs and outputs")
    retrieve: int = Field(0, ge=0, le=256, description="number of demos shown, the nearest to the input; 0: all")
    reasoning: bool = Field(False, description="request a line `reasoning` before the outputs")
    show_values: bool = Field(True, description="tell the model the allowed values of typed outputs")
    descriptions: dict[str, str] = Field(default_factory=dict, description="what a field means, by its name")
    decoding: Decoding = Field(default_factory=Decoding, description="sampling settings")  # type: ignore[arg-type]
    samples: int = Field(1, ge=1, le=64, description="number of sampled answers; the most frequent one wins")
    adapter: Literal["plain", "chat", "json", "xml"] = Field("plain", description="plain, or one of DSPy's adapters")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")
    types: NamedTypes = NAMED_TYPES


class Predict(SignatureNode):
    """A signature (DSPy's notation) answered by a language model, optionally several times with a vote."""

    Config = PredictConfig
    primary = "signature"
    learnable = {
        "instructions": "text",
        "demos": "demos",
        "retrieve": "int",
        "reasoning": "choice",
        "show_values": "choice",
        "samples": "int",
        "decoding.temperature": "float",
        "adapter": "choice",
        "lm": "lm",
    }

    config: PredictConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature, load_types(config.types, base, self.code))
        self.images = image_inputs(self.signature)
        if self.images and config.adapter != "plain":
            raise SpecError("images are sent with the plain adapter", hint="Remove adapter.", path=("adapter",))
        if config.adapter != "plain" and package_folder("workbench_dspy_seam") is None:
            hint = f"Remove adapter, or {pip_install('standard[dspy]')}."
            raise SpecError(f"the adapter '{config.adapter}' is DSPy's", hint=hint, path=("adapter",))
        if config.lm is not None:
            lm_spec(config.lm)

    @property
    def file_inputs(self) -> Collection[str]:
        return self.images

    def resolve_input(self, name: str, value: Any, folder: Path) -> Any:
        return resolve_image(value, Path(self.base), folder, name)

    @property
    def max_calls(self) -> int:
        return self.config.samples

    @property
    def streams(self) -> bool:
        asked, c = self.asked.outputs, self.config
        return (
            len(asked) == 1 and asked[0].type is str and not asked[0].closed and c.samples == 1 and c.adapter == "plain"
        )

    @cached_property
    def asked(self) -> Signature:
        """Return the signature that the model sees: with `reasoning` first, if the settings ask for it."""
        if not self.config.reasoning or "reasoning" in self.outputs:
            return self.signature
        return Signature(self.signature.inputs, (SignatureField("reasoning"), *self.signature.outputs))

    @cached_property
    def system(self) -> str:
        c = self.config
        return plain.system_text(self.asked, c.instructions, c.descriptions, c.show_values, form=True)

    @cached_property
    def nearest(self) -> Nearest:
        return Nearest(self.config.demos, self.inputs)

    @cached_property
    def settings(self) -> dict[str, Any]:
        decoding = self.config.decoding
        temperature = decoding.temperature
        if temperature is None and self.config.samples > 1:
            temperature = 0.7
        stop = plain.stop_strings(self.asked) if self.config.adapter == "plain" else ()
        return {"temperature": temperature, "top_p": decoding.top_p, "max_tokens": decoding.max_tokens, "stop": stop}

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        c, path = self.config, ("instructions",)
        known = (around.names, self.inputs, self.outputs, c.descriptions)
        yield from prompts.find_unknown_tools(c.instructions, {}, path, known=known, outputs=self.outputs)
        yield from prompts.find_contradictions(c.instructions, self.asked, path, adapter=c.adapter, known=known)
        yield from prompts.find_wrong_demos(c.demos, self.signature)
        limit = self.settings["max_tokens"] or (self.lm or around.lm).max_tokens
        needed = prompts.tokens_of_answer(self.asked) + len(self.asked.outputs) * _MARKERS[c.adapter]
        yield from prompts.find_few_tokens(limit, needed, "an answer", ("decoding", "max_tokens"))

    def demos_shown(self, values: Mapping[str, Any]) -> list[int]:
        """Return the numbers of the demos shown for an input. The input's own row is never shown."""
        return self.nearest.shown(values, self.config.retrieve)

    def training_chat(self, values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        if any(name not in values for name in (*self.inputs, *(f.name for f in self.asked.outputs))):
            return None
        if self.config.adapter == "plain":
            answer = plain.assistant_text(self.asked, values)
        else:
            from workbench_predict.dspy_adapters import render_answer

            answer = render_answer(self.config, self.asked, values)
        return [*self._render({n: values[n] for n in self.inputs}), {"role": "assistant", "content": answer}]

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        shown = self.demos_shown(inputs)
        if self.config.retrieve:
            ctx.note(demos_shown=shown)
        messages = self._render(inputs, shown)
        if self.config.samples == 1:
            return self._read(await self._ask(messages, ctx, 0), ctx)
        asked = (self._ask(messages, ctx, k) for k in range(self.config.samples))
        answers, failures = [], []
        for response in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(response, BaseException):
                if not isinstance(response, LMError) or response.kind == "auth":
                    raise response
                failures.append(response)
                continue
            try:
                answers.append(self._read(response, ctx))
            except NodeError as error:
                failures.append(error)
        if not answers:
            raise failures[0]
        return self._vote(answers, ctx)

    async def _ask(self, messages: list[dict[str, Any]], ctx: Context, replica: int) -> Response:
        return await ctx.complete(messages, lm=self.lm, replica=replica, **self.settings)

    def _render(self, inputs: Mapping[str, Any], shown: Sequence[int] | None = None) -> list[dict[str, Any]]:
        demos = [self.config.demos[i] for i in (self.demos_shown(inputs) if shown is None else shown)]
        if self.config.adapter == "plain":
            if not self.images:
                return plain.messages(self.asked, self.system, demos, inputs)
            demos = [self._with_urls(demo) for demo in demos]
            return plain.messages(self.asked, self.system, demos, self._with_urls(inputs), user_content)
        from workbench_predict.dspy_adapters import render

        return render(self.config, self.asked, demos, inputs)

    def _with_urls(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return as_urls(values, self.images, self.base)

    def _read(self, response: Response, ctx: Context) -> dict[str, Any]:
        """Return the typed outputs of one answer. Raise NodeError for a refused, empty, cut or unreadable answer."""
        text, cut = check_said(response)
        if self.config.adapter == "plain":
            values, read = answers.parse(self.asked, text, cut)
        else:
            from workbench_predict.dspy_adapters import parse

            values, read = parse(self.config, self.asked, text, cut)
        if read:
            ctx.note(fallback=ctx.span.notes.get("fallback", 0) + 1)
        if cut:
            ctx.note(cut=ctx.span.notes.get("cut", 0) + 1)
        return values

    def _vote(self, answers: list[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """Return the answer whose last output is most frequent; on a tie, the earliest."""
        ballots = [json.dumps(a[self.outputs[-1]], sort_keys=True, default=str) for a in answers]
        counts = Counter(ballots)
        winner = max(ballots, key=lambda b: (counts[b], -ballots.index(b)))
        ctx.note(votes=dict(counts))
        return answers[ballots.index(winner)]
