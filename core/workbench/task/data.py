"""The data of a workflow file: rows, cut into splits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from workbench.base.hashing import digest
from workbench.errors import SpecError, errors_at, merge_errors, suggest
from workbench.spec import Code, DataSpec, Spec, surely_met
from workbench.task.dataset import Dataset, Example, SealedRows, make_examples, split_examples, split_groups
from workbench.task.drawn_rows import ReadRow, Row, RowDraw
from workbench.task.rows import read_rows


def load_data(spec: Spec, base: Path, code: Code = "loaded") -> Dataset:
    """Read the files and cut the splits.

    code: only with `loaded`, a reader may run a package that contains the rows. Raises SpecError.
    """
    data, holes, where = spec.data, list[tuple[str, SpecError]](), list[_Where]()
    if data.file is not None:
        examples = _read(data, "file", base, holes, code, where)
        return _sealed(_split(data, examples, _sizes(data, len(examples), where[0].left_out)), holes, where)
    parts = []
    for key in ("train", "val", "test"):
        rows = _read(data, key, base, holes, code, where)
        parts.append(tuple(Example(f"{key}:{e.id}", e.fields, e.handle) for e in rows))
    return _sealed(parts, holes, where)


def check_holes(dataset: Dataset, needed: Collection[str], data: DataSpec) -> None:
    """Refuse rows with an unusable value, such as NaN, in a field that is read. Raises SpecError.

    needed: the fields that nodes, metrics and the split read.
    """
    places = [data.fields.get(name, name) for name in needed]
    if read := [error for field, error in dataset.holes if any(_overlap(field, place) for place in places)]:
        raise merge_errors(read)


def _overlap(one: str, other: str) -> bool:
    """Return True if two dotted names are equal, or one is inside the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _split(data: DataSpec, examples: list[Example], sizes: tuple[int, int, int]) -> tuple[list[Example], ...]:
    by = data.split.by if data.split is not None else None
    if by is None:
        return split_examples(examples, sizes, data.seed)
    if examples and not any(by in row for row in examples):
        raise SpecError(f"no row has the field '{by}'", hint=suggest(by, examples[0]), path=("data", "split", "by"))
    parts = split_groups(examples, sizes, data.seed, by)
    if not parts[1] or not parts[2]:
        raise SpecError(
            f"the rows have too few values of '{by}' to fill train, val and test with different ones",
            hint="Split by another field, or add rows.",
            path=("data", "split", "by"),
        )
    return parts


def _sealed(
    parts: Sequence[Sequence[Example]], holes: Sequence[tuple[str, SpecError]], where: Sequence[_Where]
) -> Dataset:
    """Make the three splits, with sealed test rows."""
    train, val, test = parts
    contents = [[dict(row.fields) for row in part] for part in parts]
    return Dataset(
        tuple(train),
        tuple(val),
        SealedRows(test),
        (),
        digest(contents),
        tuple(holes),
        sum(one.left_out for one in where),
    )


class _Where:
    """The conditions on the rows of a file. Counts the rows that meet them, and those that are left out."""

    def __init__(self, data: DataSpec):
        self.conditions = {data.fields.get(name, name): one for name, one in data.where.items()}
        self.kept, self.left_out, self._first, self._unknown = 0, 0, Example("", {}), {*self.conditions}

    def __call__(self, row: Row) -> bool:
        if self._unknown:
            self._first = Example("", row)
            self._unknown -= {name for name in self._unknown if name in self._first}
        met = all(surely_met(condition, name, row) for name, condition in self.conditions.items())
        self.kept, self.left_out = self.kept + met, self.left_out + (not met)
        return met

    def check(self) -> None:
        """Raise SpecError if the conditions leave out all rows, e.g. since no row has the field."""
        if self.kept or not self.left_out:
            return
        if self._unknown:
            name = min(self._unknown)
            message, hint = f"no row has the field '{name}'", suggest(name, self._first)
        else:
            message = f"no row of {self.left_out} meets the conditions"
            hint = "Correct them. Cells of a CSV file are text, unless data: {options: {types: ...}} converts them."
        raise SpecError(message, hint=hint, path=("data", "where"))


def _read(
    data: DataSpec, key: str, base: Path, holes: list[tuple[str, SpecError]], code: Code, where: list[_Where]
) -> list[Example]:
    if not (location := getattr(data, key)):
        return []
    where.append(keep := _Where(data))
    draw = RowDraw(data.limit, _asked(data), data.seed, keep=keep if data.where else None)
    try:
        with errors_at("data", key):
            rows = read_rows(location, base, data.options, draw, code)
    except SpecError:
        keep.check()
        raise
    found = dict[str, SpecError]()
    for row in rows:
        for field, error in row.holes.items() if isinstance(row, ReadRow) else ():
            found.setdefault(field, error)
    holes += found.items()
    return make_examples(rows, data.fields)


def _asked(data: DataSpec) -> int | None:
    """Return the number of rows that the splits take, if the file sets it and no field decides."""
    if data.split is None or data.split.by is not None:
        return None
    shares = (data.split.train, data.split.val, data.split.test)
    return None if any(isinstance(share, float) for share in shares) else int(sum(shares))


def _sizes(data: DataSpec, n: int, left_out: int) -> tuple[int, int, int]:
    """Return the numbers of rows of the splits. n: the rows that are read. left_out: those that do not meet `where`."""
    has, fewer = f"the file has {n}", "Ask for fewer rows in train, val or test"
    if left_out:
        has, fewer = f"{n} of the file's {n + left_out} meet `where`", f"{fewer}, or correct `where`"
    if data.limit is not None and n >= data.limit:
        has, fewer = f"`limit` keeps {n}", f"{fewer}, or raise `limit`"
    if data.split is None:
        if n < 3:
            raise SpecError(f"three splits need at least 3 rows, and {has}", path=("data", "file"))
        return n // 3, n // 3, n - 2 * (n // 3)
    shares = (data.split.train, data.split.val, data.split.test)
    if all(isinstance(s, float) and s <= 1 for s in shares):
        if sum(shares) > 1 + 1e-9:
            raise SpecError(f"the shares add up to {sum(shares):g}, which is above 1", path=("data", "split"))
        sizes = tuple(int(s * n) for s in shares)
    else:
        if any(isinstance(s, float) and s != int(s) for s in shares):
            raise SpecError(
                "mix no counts and shares", hint="Write e.g. {train: 60, val: 60, test: 120}.", path=("data", "split")
            )
        sizes = tuple(int(s) for s in shares)
    if sum(sizes) > n:
        raise SpecError(
            f"the split needs {sum(sizes)} rows, and {has}",
            hint=f"{fewer}.",
            path=("data", "split"),
        )
    if not sizes[1] or not sizes[2]:
        raise SpecError("val and test need at least one row each", path=("data", "split"))
    return sizes  # type: ignore[return-value]
