"""The file of `workbench data synthesize`: a workflow, the rows that it starts from, and what is kept of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from workbench.errors import SpecError, collect_errors, suggest
from workbench.spec import Code, Inherited, Source, Spec, Strict, check_nodes, read_source, spec_error
from workbench.task import Metric, pass_sections, section_loaders
from workbench.workflow import Workflow
from workbench_kit.acting import FieldCondition

#: Keys of a workflow file that mean the same here.
SHARED = ("name", "description", "lm", "roles", "nodes", "types", "policy", "budget", "concurrency", "timeout", "seed")


class SeedSpec(Strict):
    """Where rows start from, and how many are wanted."""

    from_: str | None = Field(None, alias="from", description="file of rows, READER:PLACE, or logs of agents")
    run: str | None = Field(None, description="instead of from: a run of `optimize` or of `eval --split train`")
    as_: Literal["rows", "trajectories", "failures"] = Field(
        "rows",
        alias="as",
        description="what is taken: rows; trajectories: question, steps, outcome and score; failures: the train rows "
        "that the run failed",
    )
    rows: int | None = Field(None, ge=1, description="rows wanted; default: what one pass over the seeds gives")
    beside: int = Field(0, ge=0, le=50, description="other seeds, drawn at random, in the field `beside`")
    fields: list[str] | None = Field(
        None, description="fields of the new rows; default: all but the exploded lists and `beside`"
    )

    @model_validator(mode="after")
    def _one_source(self) -> SeedSpec:
        if (self.from_ is None) == (self.run is None):
            raise ValueError("give either from (a file) or run")
        if self.as_ == "failures" and self.run is None:
            raise ValueError("failures are those of a run: give run in place of from")
        if self.as_ == "rows" and self.run is not None:
            raise ValueError("of a run, trajectories or failures are taken: write as: failures, or as: trajectories")
        return self


class PipelineSpec(Strict):
    """The keys of the file that a workflow file does not have."""

    synthesize: SeedSpec = Field(description="what the rows start from; short form: the file alone")
    explode: dict[str, str | Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="lists that become rows: {questions: question}, or {written: [question, answer]} where the items "
        "are objects",
    )
    each: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="nodes that run on each new row, after explode"
    )
    keep: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="conditions on fields, such as verdict == 'yes', and metrics, which must give their full score",
    )
    distinct: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="fields in which no two rows may be alike: {question: 0.7}, by the share of common words of texts, "
        "with 1 only equal ones; short form: their names, with 0.7",
    )

    @field_validator("synthesize", mode="before")
    @classmethod
    def _file_alone(cls, value: Any) -> Any:
        return {"from": value} if isinstance(value, str) else value

    @field_validator("keep", mode="before")
    @classmethod
    def _one_of_keep(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | dict) else value

    @field_validator("distinct", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        return dict.fromkeys(names, 0.7) if isinstance(names, list) else value

    @model_validator(mode="after")
    def _each_has_rows(self) -> PipelineSpec:
        if self.each and not self.explode:
            raise ValueError("without explode there is one row for each run: write the nodes of each under nodes")
        return self

    @property
    def exploded(self) -> tuple[str, ...]:
        """The fields that explode makes."""
        return tuple(name for names in self.explode.values() for name in ([names] if isinstance(names, str) else names))


def outputs_of(workflow: Workflow | None) -> list[str]:
    """The fields that nodes write, those that only other nodes read among them."""
    return [name for node in workflow.enabled_nodes.values() for name in node.outputs] if workflow else []


@dataclass(frozen=True)
class Pipeline:
    """A file made into things: its own keys, those of a workflow, both workflows, and the checks by what is written."""

    own: PipelineSpec
    spec: Spec
    source: Source
    nodes: Workflow
    each: Workflow | None
    checks: Mapping[str, FieldCondition | Metric]

    @property
    def base(self) -> Path:
        return Path(self.source.file).resolve().parent

    @property
    def written(self) -> tuple[str, ...]:
        """The fields that a new row has beside those of its seed, its own first."""
        made = (*self.own.exploded, *outputs_of(self.each), *outputs_of(self.nodes))
        return tuple(dict.fromkeys(name for name in made if name not in self.own.explode))


def enter_pipeline(source: Source) -> None:
    """Pass the doors of a file and of its seeds (`workbench.spec`). Raises SpecError."""
    given = source.value.get("synthesize") if isinstance(source.value, dict) else None
    seeds = given.get("from") if isinstance(given, dict) else given
    if isinstance(seeds, str):
        pass_sections({"data": {"file": seeds}}, Path(source.file).parent, "outlined")
    load_pipeline(source, "outlined")


def load_pipeline(path: Path | Source, code: Code = "loaded") -> Pipeline:
    """Read and check a file. code: the state of its user code. Raises SpecError with line and column."""
    source = read_source(path)
    value = source.value if isinstance(source.value, dict) else {}
    with source.locating():
        if odd := [key for key in value if key not in SHARED and key not in PipelineSpec.model_fields]:
            hint = f"It has {', '.join((*PipelineSpec.model_fields, *SHARED))}."
            raise SpecError(f"a file that is synthesized from has no '{odd[0]}'", hint=hint, path=(odd[0],))
        try:
            own = PipelineSpec.model_validate({k: v for k, v in value.items() if k not in SHARED})
        except ValidationError as error:
            raise spec_error(error, PipelineSpec) from None
        spec = check_nodes(source.with_value({k: v for k, v in value.items() if k in SHARED}))
        base, inherited = Path(source.file).resolve().parent, list[Inherited]()
        sections = section_loaders(spec, base, inherited, code)
        _, nodes = collect_errors((sections["lm"], sections["nodes"]))
        each = _load_each(own, spec, base, inherited, code)
        checks = _load_checks(own, spec, base, code)
        spec = spec.model_copy(update={"policy": spec.policy.inherit(inherited)})
    return Pipeline(own, spec, source, nodes, each, checks)


def _load_each(own: PipelineSpec, spec: Spec, base: Path, inherited: list[Inherited], code: Code) -> Workflow | None:
    if not own.each:
        return None
    try:
        return section_loaders(spec.model_copy(update={"nodes": own.each}), base, inherited, code)["nodes"]()
    except SpecError as error:
        for one in (error, *error.more):
            one.path = ("each", *one.path[1:])
        raise


def _load_checks(own: PipelineSpec, spec: Spec, base: Path, code: Code) -> dict[str, FieldCondition | Metric]:
    """Conditions and metrics by what the file says of them, in its order."""
    found: dict[str, FieldCondition | Metric] = {}
    for place, written in enumerate(own.keep):
        try:
            if isinstance(written, str) and not _is_metric(written):
                found[written] = FieldCondition(written, "keep")
            else:
                one = spec.model_copy(update={"metric": written})
                name, metric = section_loaders(one, base, [], code)["metric"]()[0]
                found[f"{name} #{place + 1}" if name in found else name] = metric
        except SpecError as error:
            error.path = ("keep", place)
            raise
    return found


def _is_metric(written: str) -> bool:
    """Return True for `name(...)` and python:..., which are metrics; whatever else is a condition."""
    import ast

    if written.startswith("python:"):
        return True
    try:
        tree = ast.parse(written.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return False  # which `FieldCondition` tells
    return isinstance(tree, ast.Call) and ast.unparse(tree.func) != "len"


def check_fields(pipeline: Pipeline, known: Collection[str]) -> None:
    """Raise SpecError for a field that is read before something writes it. known: the fields of the seeds."""
    own, each = pipeline.own, pipeline.each
    known = {*known, *(["beside"] if own.synthesize.beside else ())}
    _require(pipeline.nodes.input_fields, known, "a node reads", ("nodes",), "no seed has")
    known |= {*outputs_of(pipeline.nodes)}
    _require(own.explode, outputs_of(pipeline.nodes), "explode names", ("explode",), "no node writes")
    known |= {*own.exploded}
    if each is not None:
        _require(each.input_fields, known, "a node reads", ("each",), "nothing before it writes")
        known |= {*outputs_of(each)}
    for place, check in enumerate(pipeline.checks.values()):
        field, target = (getattr(check, name, None) for name in ("field", "target"))
        own_fields = [one for one in (field, target, *getattr(check, "reads", ())) if isinstance(one, str)]
        _require(getattr(check, "names", own_fields), known, "keep reads", ("keep", place))
        if field is not None and field == target:
            hint = f"Name what it should be like, e.g. exact_match({field}, target=FIELD)."
            raise SpecError(f"keep compares '{field}' with itself", hint=hint, path=("keep", place))
    _require(own.distinct, known, "distinct names", ("distinct",))
    _require(own.synthesize.fields or (), known, "fields names", ("synthesize", "fields"))


def _require(
    read: Iterable[str], known: Collection[str], who: str, path: tuple[str | int, ...], why: str = "no row has"
) -> None:
    if missing := [name for name in read if name.partition(".")[0] not in known]:
        hint = suggest(missing[0], known) or f"These are there: {', '.join(sorted(known))}."
        raise SpecError(f"{who} '{missing[0]}', which {why}", hint=hint, path=path)
