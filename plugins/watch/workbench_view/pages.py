"""The report of a run as text, and as a file: for `workbench report`, and for `to_html` of a report in Python."""

from __future__ import annotations

from pathlib import Path

from workbench.base.files import begins_with, check_output, write_whole
from workbench.base.text import one_line
from workbench.errors import StoreError
from workbench.store import Store, kind_of
from workbench_view.evaluated import EVAL_WRITERS, read_evaluation
from workbench_view.exports import WRITERS
from workbench_view.facts import read_facts


def check_report(out: Path, overwrite: bool) -> None:
    """Raise SpecError if the file is somebody else's."""
    check_output(out, ours=begins_with(WRITERS[out.suffix][1]), overwrite=overwrite)


def write_report(store: Store, run: str, out: Path) -> None:
    """Write the report of a run of `optimize` or `eval`, in the format of the file's suffix. Raises StoreError."""
    text = _report_text(store, run, out.suffix)
    try:
        write_whole(out, text)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error}; choose another path with --out") from None


def _report_text(store: Store, run: str, suffix: str) -> str:
    row = store.find_run(run, kinds=("optimize", "eval"))
    if (kind := kind_of(row)) == "eval":
        return EVAL_WRITERS[suffix](read_evaluation(store, row))
    if kind != "optimize":
        raise StoreError(f"{row['run']} is a run of `{kind}`; reports cover runs of `optimize` and `eval` only")
    return WRITERS[suffix][0](read_facts(store, row["run"]))


class PageExport:
    """The page as an exporter of a run (hook `register_exporters`)."""

    of_rows = True

    def __call__(
        self, store: Store, run: str, candidate: str, split: str | None, path: Path | None, overwrite: bool
    ) -> str:
        """Return the page of a whole run, or write it, and return a line about that."""
        if path is None:
            return _report_text(store, run, ".html")
        out = path.with_suffix(".html")
        check_report(out, overwrite)
        write_report(store, run, out)
        return f"wrote {one_line(out)}\n"
