"""The section `data` of a workflow file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.spec.base import Strict
from workbench.spec.policy import Condition, read_conditions


class SplitSpec(Strict):
    """Rows for each split: counts, or shares that add up to at most 1."""

    train: int | float = Field(ge=0)
    val: int | float = Field(gt=0)
    test: int | float = Field(gt=0)
    by: str | None = Field(
        None,
        description="a field such as user: rows with the same value stay in one split, which may then be larger or "
        "smaller than asked",
    )


class DataSpec(Strict):
    """The source of the examples: one file with a seeded split, or one file for each split."""

    file: str | None = Field(
        None,
        description="one file for all splits: .jsonl, .json, .csv, .xlsx, .parquet, a folder or pattern of them, or "
        "READER:PLACE",
    )
    split: SplitSpec | None = Field(None, description="how many rows of the file go where; default: a third each")
    id: str | None = Field(
        None,
        description="a column by whose values rows are called in warnings, reports and pages; default: `id` if there "
        "is one, else file and line",
    )
    seed: int = Field(0, description="of the split, and of the draw of `limit`")
    train: str | None = Field(None, description="instead of file: rows that optimizers learn from")
    val: str | None = Field(None, description="instead of file: rows for selecting candidates")
    test: str | None = Field(None, description="instead of file: sealed rows, read once for the proof")
    fields: dict[str, str] = Field(default_factory=dict, description="new name: name in the row, dotted if nested")
    limit: int | None = Field(
        None, ge=1, description="number of rows that are drawn of each file by the seed; default: all"
    )
    where: dict[str, Condition] = Field(
        default_factory=dict,
        description="field: its condition, as under `when` of a policy; rows that do not meet all are left out before "
        "they are drawn and split",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="passed to the reader")
    cluster: str | Literal[False] | None = Field(
        None,
        description="rows with the same value here count once in the proof; default: near copies, and rows with one "
        "value of a field that groups them, as a conversation does; false: only rows with the same inputs",
    )
    label_as_input: bool = Field(
        False,
        description="let nodes read the field that the metric compares with, as where a text is to be edited; "
        "otherwise such a workflow is refused, for it is shown the right answers",
    )

    _where = field_validator("where", mode="before")(read_conditions)

    @model_validator(mode="before")
    @classmethod
    def _file_alone(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_form(self) -> DataSpec:
        if self.file is None and not (self.train or self.val or self.test):
            raise ValueError("give either 'file', with 'split', or the files 'train', 'val' and 'test'")
        if self.file is not None and (self.train or self.val or self.test):
            raise ValueError("'file' and separate 'train', 'val', 'test' files exclude each other")
        return self
