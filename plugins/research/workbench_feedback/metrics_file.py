"""Induced metrics, and the YAML file that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from workbench.base.files import write_whole
from workbench.base.hashing import digest
from workbench.errors import SpecError
from workbench.spec import Strict, load_yaml_file, spec_error
from workbench.task import dump_yaml


class Behaviour(Strict):
    """An example in a metric, with where it comes from. One that was written by hand has no place."""

    behaviour: str = Field(min_length=1, description="what the agent did")
    feedback: str = Field("", description="what the comment said of it")
    comment: str | None = Field(None, description="FILE:LINE of the comment")
    trace: str | None = Field(None, description="name of the trace")
    step: int | None = Field(None, description="step of the trace, from 0")
    quote: str | None = Field(None, description="words of this step")


class InducedMetric(Strict):
    """A metric: a name, a definition, and behaviours that are good and bad by it."""

    name: str = Field(min_length=1, description="its name")
    definition: str = Field(min_length=1, description="what it measures, and what good behaviour is")
    good: list[Behaviour] = Field(default_factory=list[Behaviour], description="good behaviours")
    bad: list[Behaviour] = Field(default_factory=list[Behaviour], description="bad behaviours")
    aspects: int | None = Field(None, description="aspects of comments that it was made of")


class MetricsFile(Strict):
    """The file. induced: how the metrics were made and what they cover; nobody reads it back."""

    metrics: list[InducedMetric] = Field(min_length=1, description="the metrics")
    induced: dict[str, Any] = Field(default_factory=dict[str, Any], description="how they were made")


def read_metrics(path: Path) -> list[InducedMetric]:
    """The metrics of a file. Raises SpecError with its line."""
    source = load_yaml_file(path)
    with source.locating():
        try:
            metrics = MetricsFile.model_validate(source.value).metrics
        except ValidationError as error:
            wrong = spec_error(error, MetricsFile)
            wrong.hint = wrong.hint or "Write metrics: [{name: ..., definition: ...}]."
            raise wrong from None
        names = [metric.name for metric in metrics]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise SpecError(f"two metrics are called '{name}'", path=("metrics", place, "name"), hint="Rename one.")
    return metrics


def write_metrics(path: Path, metrics: Sequence[InducedMetric], induced: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all."""
    made = _dumped(metrics)
    tree = {"metrics": made, "induced": {**induced, "metrics_digest": digest(made)}}
    head = "# Made by `workbench data induce`. You may edit names and examples. Use with metric: {induced: FILE}.\n"
    write_whole(path, head + dump_yaml(tree))


def is_unedited(path: Path) -> bool:
    """Return True if a file holds metrics as they were written; one that somebody edited must not be written over."""
    try:
        found = MetricsFile.model_validate(load_yaml_file(path).value)
    except (SpecError, ValidationError):
        return False
    return found.induced.get("metrics_digest") == digest(_dumped(found.metrics))


def _dumped(metrics: Sequence[InducedMetric]) -> list[dict[str, Any]]:
    return [metric.model_dump(exclude_none=True, exclude_defaults=True) for metric in metrics]
