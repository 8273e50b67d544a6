"""The file that `workbench synthesize` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from workbench.spec import BudgetSpec, LMSpec, named_lm, named_lms, spec_error
from workbench.strict import Strict
from workbench.task import check_lms
from workbench.yamlsource import Source, load_yaml_file


class Synthesis(Strict):
    """What rows are wanted, about which tools, and who writes them."""

    name: str = Field("synthesis", min_length=1, max_length=100, description="what the rows are about")
    lm: LMSpec = Field(default_factory=lambda: LMSpec.model_validate({"model": "bundled/nano"}),
                       description="the language model that writes rows; short: its name alone")  # fmt: skip
    roles: dict[Literal["proposer", "judge"], LMSpec] = Field(
        default_factory=dict, description="other models for those who write rows and who judge them"
    )
    apis: str | None = Field(
        None, description="JSON file of tools: {name: {description, parameters}}, or a list of them"
    )
    tools: list[str] = Field(
        default_factory=list, description="callables that are run as the check: python:FILE.py:NAME"
    )
    questions: list[str] = Field(default_factory=list, description="questions of the kind that is wanted, some of which are "
                                 "shown in each request")  # fmt: skip
    rows: int = Field(100, ge=1, description="rows wanted")
    each: int = Field(5, ge=1, le=50, description="rows asked for in one request")
    shown: int = Field(3, ge=1, le=50, description="tools shown in one request; the rows are about the first of them")
    judge: bool = Field(False, description="ask the model of the role judge whether the call does what was asked")
    similar: float = Field(0.7, gt=0, le=1, description="a question that shares so much of its words with an earlier one is a "
                           "duplicate")  # fmt: skip
    temperature: float = Field(1.0, gt=0, le=2, description="at which rows are drawn")
    max_tokens: int = Field(1000, ge=16, description="tokens of one answer at most")
    budget: BudgetSpec = Field(default_factory=lambda: BudgetSpec.model_validate({"calls": 500}),
                               description="hard ceilings for all roles together")  # fmt: skip
    concurrency: int = Field(4, ge=1, le=256, description="requests under way at once")
    seed: int = Field(0, description="of which tools and questions are shown")

    _lm_name = field_validator("lm", mode="before")(named_lm)
    _role_names = field_validator("roles", mode="before")(named_lms)

    @model_validator(mode="after")
    def _something(self) -> Synthesis:
        if self.apis is None and not self.tools:
            raise ValueError("no tool is named: give apis (a file of descriptions) or tools (callables)")
        return self


def load_synthesis(path: Path) -> tuple[Synthesis, Source]:
    """Read and check the file. Raises SpecError with line and column."""
    source = load_yaml_file(path)
    try:
        spec = Synthesis.model_validate(source.value)
    except ValidationError as error:
        raise spec_error(source, error, Synthesis) from None
    check_lms(spec, source)
    return spec, source
