"""The settings file of `workbench data synthesize`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from workbench.kit.acting import ENV
from workbench.spec import (
    BudgetSpec,
    LMSpec,
    PolicySpec,
    Source,
    Strict,
    read_source,
    spec_error,
)
from workbench.task import check_lms

#: The calls that answer a question: one; several independent ones; several of which a later one needs an earlier
#: result; or none of the shown tools.
Kind = Literal["simple", "parallel", "chain", "none"]


class Failures(Strict):
    """The failed train rows of a run, as models for new rows."""

    run: str = Field(min_length=1, description="the run of `workbench optimize`, or of `workbench eval --split train`")
    database: str | None = Field(None, description="its run database; default: that of the command")
    calls: str = Field("calls", description="field of its rows with the expected calls")
    shown: int = Field(2, ge=1, le=10, description="failed rows shown in one request")
    floor: float = Field(
        0.1,
        gt=0,
        le=1,
        description="minimum weight of a tool in requests; a tool whose rows are solved half of the time has weight 1",
    )


class Synthesis(Strict):
    """The rows to write: their tools, number and kinds, and the models that write them."""

    name: str = Field(
        "synthesis", min_length=1, max_length=100, description="name of the set of rows and prefix of row ids"
    )
    lm: LMSpec = Field(
        default_factory=lambda: LMSpec.model_validate({"model": "bundled/nano"}),
        description="the language model that writes rows; short form: its name",
    )
    roles: dict[Literal["proposer", "judge"], LMSpec] = Field(
        default_factory=dict, description="other models for the roles proposer (writes rows) and judge"
    )
    apis: str | None = Field(
        None, description="JSON file of tools: {name: {description, parameters}}, or a list of them"
    )
    tools: list[str] = Field(
        default_factory=list,
        description="callables that check rows by running them, if `policy` allows: python:FILE.py:NAME",
    )
    env: dict[str, str] = ENV
    policy: PolicySpec | None = Field(
        None,
        description="allowed calls, as in a workflow; without it, callables run only with --run-tools",
    )
    questions: list[str] = Field(
        default_factory=list,
        description="sample questions, some of which are shown in each request",
    )
    judge: bool = Field(False, description="let the model of the role judge check that the calls answer the question")
    kinds: dict[Kind, float] = Field(
        default_factory=lambda: {"simple": 1.0},
        min_length=1,
        description="share of requests for each kind of row: simple, parallel, chain, none; short form: a list",
    )
    most: int = Field(3, ge=2, le=10, description="maximum calls of a row")
    failures: Failures | None = Field(
        None, description="request rows like the train rows that an earlier run failed; short form: the run"
    )
    rows: int = Field(100, ge=1, description="number of rows to write")
    each: int = Field(5, ge=1, le=50, description="rows per request")
    shown: int = Field(
        3,
        ge=1,
        le=50,
        description="tools shown in one request; the rows are about the first, those of chains about two",
    )
    similar: float = Field(
        0.7, gt=0, le=1, description="a question that shares this share of its words with an earlier one is a duplicate"
    )
    temperature: float = Field(1.0, gt=0, le=2, description="sampling temperature of rows")
    max_tokens: int = Field(1000, ge=16, description="maximum tokens of an answer")
    budget: BudgetSpec = Field(
        default_factory=lambda: BudgetSpec.model_validate({"calls": 500}),
        description="hard ceilings for all roles together",
    )
    concurrency: int = Field(4, ge=1, le=256, description="concurrent requests")
    seed: int = Field(0, description="random seed of the tools and questions shown")

    @field_validator("kinds", mode="before")
    @classmethod
    def _short_kinds(cls, value: Any) -> Any:
        value = [value] if isinstance(value, str) else value
        return {str(kind): 1.0 for kind in value} if isinstance(value, list) else value

    @field_validator("kinds")
    @classmethod
    def _checked_kinds(cls, value: dict[Kind, float], info: ValidationInfo) -> dict[Kind, float]:
        if wrong := next((kind for kind, share in value.items() if not 0 < share < math.inf), None):
            raise ValueError(f"the share of {wrong} must be above 0; leave out unwanted kinds")
        if "none" in value and not info.data.get("judge"):
            raise ValueError(
                "rows of the kind none have no call to run, so a judge must check them: set judge: true, "
                "or leave none out"
            )
        return value

    @field_validator("failures", mode="before")
    @classmethod
    def _short_failures(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _something(self) -> Synthesis:
        if self.apis is None and not self.tools:
            raise ValueError("no tools are given: set apis (a file of descriptions) or tools (callables)")
        return self


def load_synthesis(path: Path | Source) -> tuple[Synthesis, Source]:
    """Read and check the file. Raises SpecError with line and column."""
    source = read_source(path)
    with source.locating():
        try:
            spec = Synthesis.model_validate(source.value)
        except ValidationError as error:
            raise spec_error(error, Synthesis) from None
        check_lms(spec)
    return spec, source
