"""Metrics, which score predictions."""

from __future__ import annotations

import ast
import re
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pydantic import ValidationError

from workbench.errors import PluginError, SpecError, placed_at
from workbench.plugins import plugins
from workbench.spec import PREFIX, Code, Spec, read_outside
from workbench.task.arguments import check_types, find_missing_arguments
from workbench.task.dataset import Example, Score

#: Files that a metric's author does not know: ours, and Python's.
_NOT_THEIRS = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")


class Metric(Protocol):
    """A callable (example, prediction, trace) -> Score | float | bool, which may be a coroutine function.

    Scores are in [0, 1], higher is better. A metric raises only for errors of its own. With `needs_lm = True` it also
    receives `lm=`, a coroutine function (messages, **settings) -> Response whose calls are paid under the role `judge`.
    With `needs_sandbox = True` it also receives `sandbox=`, which is `workbench.runtime.Sandbox.call`. With `user_code
    = True` it is called in a thread, one row at a time, with a deadline. A class with `path_options = ("file",)` reads
    the files that these options name: they are relative to the workflow file, written `metric: {NAME: FILE}`, and if
    their content changes a run cannot be resumed. `reads` and `target` name fields of the row that must be columns of
    the data.

    `highest = 0.8` declares that scores never exceed this number: the smaller the largest loss, the smaller the gain
    that the proof can show. The lowest score is always 0, that of a failure.

    `floor(train, rows, inputs)` returns the result without a model, as (mean score on these rows, description of the
    method), or None. It is reported next to the sealed scores, and decides nothing.

    Args:
        example: the whole row, labels included.
        prediction: every field that the workflow's nodes wrote.
        trace: `workbench.workflow.Trace`.
    """

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> Any: ...


def highest_score(metric: Metric) -> float:
    """Return the highest score that a metric can give."""
    return float(getattr(metric, "highest", 1.0))


def as_score(value: Any, highest: float = 1.0) -> Score:
    """Convert a metric's return value to a Score. Raises ValueError if it is not a number in [0, highest]."""
    try:
        score = value if isinstance(value, Score) else Score(float(value))
        usable = 0.0 <= score.value <= highest  # never true of NaN
    except (TypeError, ValueError):
        raise ValueError(f"a metric must return a number in [0, {highest:g}], not {value!r:.100}") from None
    if not usable:
        raise ValueError(f"a metric must return a number in [0, {highest:g}], not {score.value!r}")
    return score


class MetricFaults:
    """Counts a metric's errors, and the rows on which it failed. A row may be scored several times."""

    #: A run ends if the metric fails on each of the first rows, up to this many.
    FIRST_ROWS: ClassVar[int] = 5

    def __init__(self, metric: Any):
        self.metric = metric
        self._given, self._worked = dict[str, str](), False  # handles by id
        self._raised: dict[str, set[str]] = {}

    def scored(self, row: Example) -> None:
        self._given.setdefault(row.id, row.handle)
        self._worked = True

    def raised(self, row: Example, error: BaseException) -> str:
        """Count an error of the metric on a row. Returns a description of the error and its location."""
        text = f"{type(error).__name__}: {error}{_place(error, self.metric)}"
        self._given.setdefault(row.id, row.handle)
        self._raised.setdefault(text, set()).add(self._given[row.id])
        return text

    def check(self, rows: int) -> None:
        """Raise SpecError if the metric failed on each of the first rows: it would fail on the others, too, which cost
        calls. rows: the number of all rows, if below FIRST_ROWS."""
        if not self._worked and len(self._given) >= min(self.FIRST_ROWS, rows) and self._raised:
            text = max(self._raised, key=lambda t: len(self._raised[t]))
            raise SpecError(
                f"the metric failed on each of the first {len(self._given)} rows: {text}",
                path=("metric",),
                hint="Correct the metric, or what it reads of the rows, and start again.",
            )

    def lines(self) -> list[str]:
        """Return a line for each of the three most frequent errors."""
        by_count = sorted(self._raised.items(), key=lambda item: -len(item[1]))
        return [
            f"the metric failed on {len(rows)} of the {len(self._given)} rows that it was given, e.g. {min(rows)}: "
            f"{text}"
            for text, rows in by_count[:3]
        ]


def _place(error: BaseException, metric: Any) -> str:
    """Return the file and line of the metric's own code at which an error was raised."""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [f for f in frames if not f[0].startswith(_NOT_THEIRS) and "site-packages" not in f[0]]
    code = getattr(getattr(metric, "function", None), "__code__", None)
    if code is not None and code.co_filename not in {name for name, _ in own}:
        own = [(code.co_filename, code.co_firstlineno)]  # its return value is wrong
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


def parse_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Parse `f1(answer, target=labels.text)` into ("f1", ["answer"], {"target": "labels.text"}).

    Arguments are field names, possibly dotted, or literals. Raises SpecError.
    """
    if text.startswith(PREFIX):
        return text, [], {}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"cannot read the metric '{text[:80]}'", hint="Write e.g. exact_match(label).") from error
    if isinstance(tree, ast.Name):
        return tree.id, [], {}
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise SpecError(f"cannot read the metric '{text[:80]}'", hint="Write e.g. exact_match(label).")
    args = [_argument(node) for node in tree.args]
    return tree.func.id, args, {k.arg: _argument(k.value) for k in tree.keywords if k.arg}


def graded_field(written: Any) -> str | None:
    """Return the field of the prediction that a metric reads, from the file; None for all fields. Loads no metric."""
    if isinstance(written, str):
        _, args, options = parse_call(written)
        found = args[0] if args else options.get("field")
    elif isinstance(written, Mapping) and len(cast(Mapping[str, Any], written)) == 1:
        given = next(iter(cast(Mapping[str, Any], written).values()))
        found = cast(Mapping[str, Any], given).get("field") if isinstance(given, Mapping) else None
    else:
        return None
    return found if isinstance(found, str) else None


def metric_options(factory: Any, given: Any) -> dict[str, Any]:
    """Return the options of `{NAME: given}`: a mapping of them, or the value of a single one, the file or the field."""
    if isinstance(given, Mapping | None):
        return dict(cast(Mapping[str, Any], given or {}))
    return {next(iter(_path_options(factory)), "field"): given}


def locate_paths(factory: Any, options: Mapping[str, Any], base: Path, *at: str) -> dict[str, Any]:
    """Return options with paths resolved relative to the workflow file's folder."""
    paths = _path_options(factory)
    for name in paths:
        if isinstance(text := options.get(name), str):
            if not read_outside(text, base, *at, name):
                raise SpecError(f"{text} is outside the folder of the file, and is not read yet")
    return {k: str(base / v) if k in paths and isinstance(v, str) else v for k, v in options.items()}


def check_no_path(name: str, factory: Any) -> None:
    """Raise SpecError for a metric that reads a file but is written as a call, since a path in a call would not be
    found by searches for files."""
    if options := _path_options(factory):
        raise SpecError(f"the metric '{name}' reads a file", hint=f"Write metric: {{{name}: {options[0].upper()}}}.")


def metric_files(metrics: Sequence[Any], base: Path) -> list[Path]:
    """Return the existing files that metrics read, according to the workflow file."""
    found = [
        Path(options[name])
        for written in metrics
        if isinstance(written, Mapping) and len(cast(Mapping[str, Any], written)) == 1
        for factory, options in [_made_of(cast(Mapping[str, Any], written), base)]
        for name in _path_options(factory)
        if isinstance(options.get(name), str)
    ]
    return [path for path in found if path.is_file()]


def _made_of(written: Mapping[str, Any], base: Path) -> tuple[Any, dict[str, Any]]:
    name, given = next(iter(written.items()))
    factory = plugins().get("metrics", name)
    return factory, locate_paths(factory, metric_options(factory, given), base)


def _path_options(factory: Any) -> tuple[str, ...]:
    return tuple(getattr(factory, "path_options", ()))


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise SpecError(
            f"cannot read the metric's argument '{ast.unparse(node)}'",
            hint="Write a field's name, a number or a quoted text.",
        ) from error


def without_method(error: Exception) -> str:
    """Return the message of a failed call, without the name of our method."""
    told = str(error).partition("__init__() ")[2] or str(error)
    taken = re.fullmatch(r"takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given", told)
    if taken:  # Python counts `self`
        return f"it takes at most {int(taken[1]) - 1} without a name, and {int(taken[2]) - 1} are given"
    told = told.replace("missing 1 required positional argument:", "it needs")
    return told.replace("got an unexpected keyword argument", "it knows no")


# Loading


def load_metrics(spec: Spec, base: Path, code: Code = "loaded") -> list[tuple[str, Metric]]:
    """Load the metrics, with the names to show: as in the file, numbered if several have the same name.

    code: the state of their user code.
    """
    found: list[tuple[str, Metric]] = []
    for place, given in enumerate(spec.metrics):
        path = ("metric", place) if isinstance(spec.metric, list) else ("metric",)
        name = given if isinstance(given, str) else next(iter(given), "metric")
        same = sum(known == name or known.startswith(f"{name} #") for known, _ in found)
        with placed_at(*path):
            found.append((f"{name} #{same + 1}" if same else name, _load_metric(given, base, path, code)))
    return found


def _load_metric(written: str | dict[str, Any], base: Path, path: tuple[str | int, ...], code: Code) -> Metric:
    """Load a metric from `name(args)`, `python:...`, or a mapping {name: {option: value}}."""
    try:
        if isinstance(written, str):
            name, args, options = parse_call(written)
            if name.startswith(PREFIX):
                return plugins().get("metrics", "python")(name, base, code)
        else:
            if len(written) != 1:
                raise SpecError("name one metric", hint="Write e.g. metric: {f1: {field: answer}}.")
            name, args, options = next(iter(written)), [], {}
        if name == "python":  # without its prefix, an address of user code would be missed by checks
            raise SpecError(f"'{name}' is not a metric by itself", hint=f"Write metric: {PREFIX}file.py:function.")
        factory = plugins().get("metrics", name)
        if isinstance(written, str):
            check_no_path(name, factory)
        else:
            options = locate_paths(factory, metric_options(factory, written[name]), base, name)
        if missing := find_missing_arguments(factory, args, options):
            what = f"the field to compare ({missing[0]})" if missing[0] == "field" else f"'{missing[0]}'"
            call = f"{{{name}: {missing[0].upper()}}}" if missing[0] in _path_options(factory) else f"{name}(label)"
            raise SpecError(f"the metric '{name}' needs {what}", hint=f"Write e.g. metric: {call}.")
        try:
            metric = factory(*args, **options)
        except TypeError:
            check_types(factory, args, options)  # clearer than Python's error
            raise
        check_types(factory, args, options)
        return metric
    except (SpecError, PluginError) as error:
        hint = error.hint if isinstance(error, SpecError) else None
        message = error.message if isinstance(error, SpecError) else str(error)
        raise SpecError(message, hint=hint, path=path) from error
    except (TypeError, ValueError, ValidationError) as error:
        raise SpecError(
            f"the metric does not take these arguments: {without_method(error)}",
            hint="Write e.g. metric: exact_match(label).",
            path=path,
        ) from error
