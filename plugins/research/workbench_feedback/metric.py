"""The metric `induced`: a language model judges a trace by the metrics of a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from workbench.errors import NodeError, SpecError, suggest
from workbench.lm import Response
from workbench.task import Example, Score
from workbench.workflow import Trace
from workbench_feedback.answers import Asker, Messages, Unreadable
from workbench_feedback.judging import Judged, ask_ratings, read_ratings
from workbench_feedback.metrics_file import InducedMetric, read_metrics
from workbench_kit.logs import Log, LogStep, field_lines, read_steps


class Induced:
    """The mean over the metrics of 1 for good behaviour, 0 for bad behaviour, and 0.5 for neither.

    One call of the role `judge` for each row, a second one if its answer cannot be read. If that cannot, either, the
    row fails with the kind `judge`. The feedback names each trait with its evidence, and what bad ones should be.

    Args:
        file: that `workbench data induce` wrote, or of that form.
        only: names of metrics; None: all of the file.
        max_tokens: of the judge's answer.
        window: tokens of its prompt, roughly; longer steps are cut.
    """

    needs_lm = True
    path_options: ClassVar = ("file",)

    def __init__(self, file: str, only: list[str] | None = None, max_tokens: int = 3000, window: int = 16_000):
        if not isinstance(file, str):
            raise SpecError(f"'file' is not a path: {file!r}", hint="Write metric: {induced: metrics.yaml}.")
        for name, value, least in (("max_tokens", max_tokens, 64), ("window", window, 300)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SpecError(f"'{name}' is {value!r}", hint=f"Write a whole number of {least} or more.")
        self.metrics, self.max_tokens, self.window = _choose(_read(Path(file)), file, only), max_tokens, window

    async def __call__(
        self,
        example: Example,
        prediction: Mapping[str, Any],
        trace: Trace | None,
        *,
        lm: Callable[..., Awaitable[Response]],
    ) -> Score:
        log = trace_log(trace, prediction)

        async def send(messages: Messages, *, replica: int, role: str, temperature: float) -> Response:
            more = {"temperature": temperature} if temperature else {}  # else that of the model's own settings
            return await lm(messages, replica=replica, max_tokens=self.max_tokens, **more)

        messages = ask_ratings(log, self.metrics, self.window)
        try:
            judged = await Asker(send).ask(messages, "judge", lambda text: read_ratings(text, log, len(self.metrics)))
        except Unreadable as error:
            raise NodeError("judge", f"no ratings by {len(self.metrics)} metrics: {error}") from error
        return score_traits(judged, self.metrics)


def _read(path: Path) -> list[InducedMetric]:
    try:
        return read_metrics(path)
    except SpecError as error:  # the place in the metrics' file must outlive that in the workflow file
        place = ":".join(str(part) for part in (error.file, error.line, error.column) if part is not None)
        raise SpecError(f"{place}: {error.message}" if place else error.message, hint=error.hint) from None


def _choose(metrics: Sequence[InducedMetric], file: str, only: Sequence[str] | None) -> list[InducedMetric]:
    if only is None:
        return list(metrics)
    names = [metric.name for metric in metrics]
    if not isinstance(only, list) or not only:
        raise SpecError("'only' is not a list of names", hint=f"Write only: [{names[0]}].")
    for name in only:
        if name not in names:
            raise SpecError(f"{Path(file).name} has no metric '{name}'", hint=suggest(str(name), names))
    return [metric for metric in metrics if metric.name in only]


def trace_log(trace: Trace | None, prediction: Mapping[str, Any]) -> Log:
    """The log of a row that has just run. It holds what the first node read, and nothing else of the row."""
    spans = trace.spans if trace else []
    prompts = {call.key: call.messages for span in spans for call in span.calls if call.key}
    steps = tuple(read_steps([span.as_dict() for span in spans], lambda call: prompts.get(call.get("key", ""), ())))
    said = field_lines(prediction)
    asked = field_lines(spans[0].inputs) if spans else ""
    return Log(trace.example if trace else "", steps or (LogStep("workflow", said),), asked, outcome=said)


def score_traits(judged: Judged, metrics: Sequence[InducedMetric]) -> Score:
    """The score and the feedback of ratings."""
    ratings = {trait.metric: trait.rating for trait in judged.traits}
    value = sum((1 + ratings.get(n, 0)) / 2 for n in range(len(metrics))) / len(metrics)
    lines = []
    for trait in judged.traits:
        metric = metrics[trait.metric]
        seen = f'step {trait.step}, "{trait.quote}"'
        if trait.rating > 0:
            lines.append(f"{metric.name}: good ({seen}). {trait.reason}".strip())
        else:
            lines.append(f"{metric.name}: bad ({seen}). {trait.reason} Wanted: {metric.definition}")
    return Score(value, "\n".join(lines) or None)
