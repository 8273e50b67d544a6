"""Bundles of a finished workflow that run on another machine: `workbench export --format bundle`."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.base.files import NEVER_COPIED
from workbench.errors import SpecError, WorkbenchError
from workbench.inference.loaded import read_workflow
from workbench.spec import Source, Spec, collecting
from workbench.store import is_run_database
from workbench.task import called_tree, dump_yaml, pass_sections
from workbench.workflow import Workflow

#: The packages installed here, in the format of `pip install -r`.
LOCK = "requirements.lock"


def bundle_file(path: Path | Source, out: Path) -> Path:
    """Bundle a workflow file, or one already read (`write_bundle`)."""
    spec, source, workflow = read_workflow(path, (), "outlined")
    return write_bundle(spec, source, workflow, out)


def write_bundle(spec: Spec, source: Source, workflow: Workflow, out: Path) -> Path:
    """Write a folder that runs on other machines.

    It contains the files that git tracks, or else the folder of the workflow file; the files that the workflow names;
    and the lock of the installed packages. The workflow file is written without data, metric and budget.

    Args:
        spec, source: the file that the workflow comes from, as typed values and as written.
        workflow: the workflow to write; its base is the folder of the file.
        out: the folder to create. It must be missing or empty.

    Returns the workflow file in the folder.

    Raises:
        SpecError: the workflow names something that cannot be copied, such as an absolute path elsewhere.
        WorkbenchError: the folder cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out} exists and is not empty", hint="Name a new folder.")
    base = workflow.base.resolve()
    tree = called_tree(spec, source.value, workflow)
    tracked = _git(base, "rev-parse", "--show-toplevel")
    top = Path(tracked.rstrip("\n")) if tracked else base
    named = list(_named(tree, base, top))
    root = Path(os.path.commonpath([base, *named])) if tracked else base
    files = {root / name for name in _git(root, "ls-files", "-z").split("\0")} if tracked else {*_inside(base)}
    for path in named:
        if path.name.startswith(".") and path not in files:
            raise SpecError(f"{path} is hidden, and a bundle is passed on", hint="Rename it, or remove its name.")
        files |= set() if base.is_relative_to(path) else {*_inside(path)}
    made = out / base.relative_to(root) / Path(source.file).name
    try:
        for file in sorted(files):
            if file.is_file() and file.resolve().is_relative_to(root):
                (target := out / file.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(dump_yaml(tree), encoding="utf-8")
        found = {f"{one.name}=={one.version}" for one in importlib.metadata.distributions()}
        (out / LOCK).write_text("".join(f"{line}\n" for line in sorted(found)), encoding="utf-8")
        with collecting(made.parent):  # these files are other ones than those that the user was asked about
            read_workflow(made, (), "outlined")
        list(_named(tree, made.parent.resolve(), out.resolve()))
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise WorkbenchError(f"{out} cannot be written: {error.strerror or error}") from error
    except SpecError:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return made


def _named(tree: Any, base: Path, top: Path) -> Iterator[Path]:
    """Yield the files and folders that a workflow names. Raises SpecError for one outside of `top`."""
    with collecting(base) as passed:
        pass_sections(tree, base, "outlined", called=True)
    paths = {path.resolve(): one.kind for one in passed for path in one.files}
    weights = [one.base / Path(one.text).expanduser() for one in passed if one.form == "model"]
    paths |= dict.fromkeys((path.resolve() for path in weights), "reads outside its folder")
    for path, kind in paths.items():
        if not path.exists():
            raise SpecError(f"the workflow names {path}, which is missing", hint="A bundle carries it: put it there.")
        if path.is_relative_to(top):
            yield path
        elif kind != "starts a program" or not os.access(path, os.X_OK) or path.is_dir():
            raise SpecError(
                f"the workflow names {path}, which lies outside {top}",
                hint="Move it beside the workflow file, and write its path relative to that.",
            )


def _inside(path: Path) -> Iterator[Path]:
    """Yield the file, or those of a folder, without hidden, installed, compiled and run-generated files."""
    if path.is_file():
        yield path
    names = sorted(path.iterdir()) if path.is_dir() else []
    runs = tuple(one.name for one in names if one.is_file() and is_run_database(one))
    for one in names:
        left_out = one.name.startswith(".") or one.name in NEVER_COPIED or one.name.startswith(runs)
        if not (left_out or (one.is_dir() and one.is_symlink())):
            yield from _inside(one)


def _git(folder: Path, *words: str) -> str:
    """Return the output of a git command in a folder; empty outside a repository, or without git."""
    try:
        command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]  # a monitor is a program
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
