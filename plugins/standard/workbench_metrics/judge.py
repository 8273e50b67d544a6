"""The metric `judge`: a language model scores the answer by a rubric."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from workbench.errors import NodeError
from workbench.task import Example, Score
from workbench_kit.answers import UNREAD, choose_scale, find_scales, read_grade
from workbench_kit.logs import describe_course
from workbench_metrics.base import get_field

_RUBRIC = "The answer must be correct."
_SYSTEM = """\
You grade {what}. Rubric:
{rubric}
Reply with one short sentence of reasoning, and then a last line of the form
score: N
where {grades}."""
_UNREAD = (
    "the rubric states no scale that can be read, and the judge gave no grade with its best one, such as 4/5: write "
    "`from 1 to 5` in the rubric, or set `scale`"
)


class Judge:
    """Asks the model of the role `judge` for a grade. Its calls are billed, and its sentence becomes the feedback.

    An answer without a grade on the scale is a failure of the kind `judge`, and the row has no score.

    Args:
        field: the field to grade; default: the whole prediction.
        rubric: the criteria.
        rubric_field: a field of the row with its own criteria, in addition to `rubric` or in place of it.
        see: answer, or trace: the course, too: calls of tools with their results, and what each node wrote. A judge
            of safety needs it (ToolEmu, arXiv 2309.15817): harm is done by calls, and no answer need tell of it.
        target: a field of the row, shown to the judge as the reference.
        scale: the best grade where the rubric states no scale, as `from 1 to 5` does; the worst is 0. Default: 10.
            Where the rubric seems to state one that cannot be read, the judge is asked for it, as in 4/5. `1 (best)
            to 5 (worst)` is turned: 1 is then a share of 1.
        max_tokens: of the judge's answer.
    """

    needs_lm = True

    def __init__(
        self,
        field: str | None = None,
        rubric: str = _RUBRIC,
        target: str | None = None,
        scale: int | None = None,
        max_tokens: int = 200,
        see: Literal["answer", "trace"] = "answer",
        rubric_field: str | None = None,
    ):
        if scale is not None and scale < 1:
            raise ValueError("scale must be at least 1")
        stated = find_scales(rubric, described=False)
        if scale is not None and len(stated) == 1 and (one := stated.pop()).best != scale:
            raise ValueError(f"the rubric asks for {one}, and scale is {scale}: take one of them out")
        if see not in ("answer", "trace"):
            raise ValueError(f"see is answer or trace, not {see}")
        self.see, self.rubric_field, self.reads = see, rubric_field, (rubric_field,) if rubric_field else ()
        self.field, self.rubric, self.target, self.scale, self.max_tokens = field, rubric, target, scale, max_tokens

    async def __call__(
        self, example: Example, prediction: Mapping[str, Any], trace: Any, *, lm: Callable[..., Awaitable[Any]]
    ) -> Score:
        inputs = dict((trace.spans[0].inputs if trace and trace.spans else {}).items())
        graded = get_field(prediction, self.field, "prediction") if self.field else dict(prediction)
        parts = [f"Input: {_text(inputs)}"] if inputs else []
        if self.target:
            parts.append(f"Reference: {_text(get_field(example, self.target, 'row'))}")
        if self.see == "trace":
            parts.append(f"Course:\n{describe_course(trace)}")
        parts.append(f"Answer: {_text(graded)}")
        rubric = self.rubric
        if self.rubric_field:
            own = _text(get_field(example, self.rubric_field, "row"))
            rubric = own if rubric == _RUBRIC else f"{rubric}\n{own}"
        what = "an answer" if self.see == "answer" else "the course of a run"
        scale = choose_scale(rubric, self.scale)
        grades = scale.describe(whole=self.scale is not None)
        messages = [
            {"role": "system", "content": _SYSTEM.format(what=what, rubric=rubric, grades=grades)},
            {"role": "user", "content": "\n".join(parts)},
        ]
        response = await lm(messages, max_tokens=self.max_tokens)
        text, cut = response.text, response.finish == "length"
        grade = None if cut else read_grade(text, scale)
        if grade is None:
            if cut:
                why = "its answer was cut (max_tokens)"
            else:
                why = _UNREAD if scale == UNREAD else f"it gave no grade from {scale}"
            raise NodeError("judge", f"the judge gave no grade: {why}: {text[:200]!r}")
        return Score(grade[0], grade[1] or None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
