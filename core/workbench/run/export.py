"""Exports of a candidate of a stored run: as a file, a bundle, or the start of another run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from workbench._version import __version__
from workbench.base.distribution import how_to_get
from workbench.base.files import check_output, write_whole
from workbench.errors import PluginError, SpecError, StoreError, suggest
from workbench.inference import write_bundle
from workbench.plugins import plugins
from workbench.run.history import candidate_workflow, winner_of
from workbench.run.start import prepare_stored
from workbench.run.stored_file import read_stored_file, read_stored_source
from workbench.spec import Code, Source, apply_overrides, check_spec, load_yaml, names_code
from workbench.store import Candidates, Orders, Store, add_run, dumps, kind_of, new_run_name, read_options, read_report
from workbench.task import dump_yaml, file_tree, kept_search, written_value
from workbench.workflow import Workflow


def export_candidate(
    store: Store,
    run: str,
    candidate: str | None,
    form: str,
    out: Path | None,
    *,
    split: str | None = None,
    run_code: bool = False,
    overwrite: bool = False,
) -> str | None:
    """Export a candidate as YAML, or it or its rows through an exporter plugin.

    Args:
        store: the run database.
        run: name of the run, or a prefix of it.
        candidate: its hash, or a prefix; None: the winner.
        form: `yaml`, or the name of an exporter.
        out: file or folder to write. None returns YAML, or rows, as text.
        split: the rows to export, for an exporter of rows; None: all stored rows.
        overwrite: replace an existing file.
        run_code: let an exporter load the Python that the workflow file names. YAML never needs it.

    Raises:
        StoreError: there is no such run or candidate, or it is damaged.
        SpecError: the candidate cannot be exported in this form, or `out` is another file.
    """
    exporter = None if form == "yaml" else _find_exporter(form)
    if getattr(exporter, "of_rows", False):
        assert exporter is not None
        return exporter()(store, run, candidate or "", split, out, overwrite)
    if split is not None:
        raise SpecError(f"--split is for the rows of a run, which {form} has not", hint="Write --format atif for them.")
    row, _, found, baseline = _chosen(store, run, candidate)
    if out is not None and (form == "yaml" or out.is_file()):
        check_output(out, inputs=[row["file"] or ""], overwrite=overwrite)
    if exporter is not None:
        _export_through_plugin(exporter, row, found, form, out, run_code)
        return None
    text = _write_text(row, found, baseline, out.resolve().parent if out else Path.cwd())
    if out is None:
        return text
    try:
        write_whole(out, text)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error}; choose another path with --out") from None
    return None


def _write_text(row: Any, found: Workflow, baseline: Workflow, folder: Path | None = None) -> str:
    """Return a candidate as the text of a workflow file. folder: its future folder; None: that of the run's file."""
    file = read_stored_file(row)
    workflow = Workflow(found.tree, file.base)
    raw, search = written_value(file.source), kept_search(file.spec, baseline, workflow)
    return dump_yaml(file_tree(file.spec, raw, workflow, folder or file.base, search, baseline))


def read_candidate(store: Store, run: str) -> Source:
    """Return the winner of a run as a workflow file at the path of the run's file, so that relative paths stay valid.

    Raises StoreError: there is no such run, or it is damaged.
    """
    row, _, found, baseline = _chosen(store, run, None)
    return load_yaml(_write_text(row, found, baseline), read_stored_source(row)[0].file)


def branch_run(store: Store, run: str, candidate: str | None, sets: Sequence[tuple[str, Any]] = ()) -> str:
    """Add a run that starts from a candidate of another run, and return its name. `resume` starts it.

    The new run has the file, data, search and budget of the other one, and the candidate as its workflow. Gains are
    measured against that candidate, and the sealed rows that the other run tested count as tested. Both runs record the
    branch. None of the run's code is executed.

    Args:
        store: the run database.
        run: name of the run, or a prefix of it. It may still be running.
        candidate: its hash or a prefix of it; None: the winner, or `baseline`.
        sets: changed settings of the new run, as (address, value).

    Raises:
        StoreError: there is no such run or candidate, or it is damaged.
        SpecError: a setting is wrong.
    """
    row, hash_, found, baseline = _chosen(store, run, candidate)
    options, name = read_options(row), new_run_name()
    text = _write_text(row, found, baseline)
    spec, _ = check_spec(apply_overrides(load_yaml(text, row["file"]), sets, options["outside"]))
    kept = {key: options[key] for key in ("outside", "keep_unproved", "sandbox") if key in options}
    own = {"sets": [list(one) for one in sets], "out": f"optimized-{name}.yaml"}
    origin = {"run": row["run"], "candidate": hash_}
    add_run(
        store,
        run=name,
        name=row["name"],
        status="ready",
        kind="optimize",
        file=row["file"],
        spec=text,
        options=dumps({**kept, **own, "branched_from": origin}),
        data_hash=row["data_hash"],
        seed=spec.seed,
        version=__version__,
    )
    Orders(store, row["id"]).add("branch", {"candidate": hash_, "run": name}, outcome="done")
    return name


def bundle_candidate(store: Store, run: str, candidate: str | None, out: Path) -> Path:
    """Write a candidate as a folder that runs on other machines (`write_bundle`).

    run, candidate: as in `export_candidate`.

    Raises:
        StoreError: there is no such run or candidate, or it is damaged.
        SpecError: the bundle cannot include something that the candidate names.
    """
    row, _, found, _ = _chosen(store, run, candidate)
    file = read_stored_file(row)
    return write_bundle(file.spec, file.source, Workflow(found.tree, file.base, code="outlined"), out)


def _chosen(store: Store, run: str, candidate: str | None) -> tuple[Any, str, Workflow, Workflow]:
    """Return a run, the hash and workflow of its candidate (None: the winner), and its baseline. Raises StoreError."""
    row = store.find_run(run, kinds=("optimize",))
    known = Candidates(store, row["id"])
    named = None if candidate == "winner" else candidate
    chosen = known.find_baseline() if named == "baseline" else named or winner_of(read_report(row))
    hash_ = next((c["hash"] for c in known.read_all() if chosen and c["hash"].startswith(chosen)), None)
    found, baseline = candidate_workflow(store, row["id"], hash_), candidate_workflow(store, row["id"], None)
    if hash_ is None or found is None or baseline is None:
        none = "has no winner yet" if known.find_baseline() else "has no candidates yet"
        why = none if chosen is None else f"has no candidate '{chosen}'"
        raise StoreError(f"run {row['run']} ({kind_of(row)}) {why}; see workbench show {row['run']}")
    return row, hash_, found, baseline


def _find_exporter(form: str) -> Any:
    try:
        return plugins().get("exporters", form)
    except PluginError:
        known = plugins().names("exporters")
        if form in known or plugins().set_aside:  # the error names the plugins that failed
            raise
        way = how_to_get("exporters", form) or suggest(form, ["yaml", *known])
        raise SpecError(f"there is no format '{form}'. {way}") from None


def _export_through_plugin(
    exporter: Any, row: Any, found: Workflow, form: str, out: Path | None, run_code: bool
) -> None:
    needs_task, file = getattr(exporter, "needs_task", False), read_stored_file(row)
    named = [found.tree, file.source.value] if needs_task else [found.tree]
    code: Code = "loaded" if run_code else "outlined"
    more: dict[str, Any] = {"task": prepare_stored(row, code=code)} if needs_task else {}
    base = more["task"].workflow.base if needs_task else file.base
    if getattr(exporter, "needs_spec", False):
        more["spec"] = file.spec
    if check := getattr(exporter, "check", None):  # errors that no flag can fix come before the request for one
        check(Workflow(found.tree, base), **more)
    if not run_code and names_code(named):
        raise SpecError(
            "the run names Python or servers, which were not loaded: looking at a run does not run its code",
            hint=f"The format {form} needs it: read that code first, then add --run-code.",
        )
    there = {folder for folder in ((out, *out.parents) if out else ()) if folder.exists()}
    try:
        exporter(Workflow(found.tree, base, code=code), out, **more)
    except BaseException:
        _remove_empty_folders(out, there)
        raise


def _remove_empty_folders(out: Path | None, there: Collection[Path]) -> None:
    """Remove the empty folders that a failed export created. there: folders that existed before."""
    for folder in (out, *out.parents) if out else ():
        if folder in there or not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()
