"""The needs of the rows of a task: files, plugins, and variables of models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from workbench.base.files import file_digest
from workbench.base.type_guards import is_dict, walk
from workbench.errors import WorkbenchError
from workbench.lm import split_model
from workbench.plugins import plugins
from workbench.proof import find_perturbations
from workbench.runtime import Runtime
from workbench.spec import LMSpec, collecting, readers_of
from workbench.task import Task, pass_sections

#: Ends of the names of variables that go to a worker where they begin with the provider's name: a key without the
#: address that belongs to it would be sent to another server.
_OF_PROVIDERS = ("_KEY", "_TOKEN", "_SECRET", "_BASE_URL", "_API_BASE", "_API_VERSION")
_PROGRAM = "starts a program"  # of whose folder all counts; folders of weights and documents are to be shared
_VARIABLE = re.compile(r"\$\{?(\w+)")


def files_of(task: Task) -> Iterator[tuple[str, str]]:
    """The files that rows read or run, relative to the workflow file, with their digests."""
    base = task.workflow.base.resolve()
    with collecting(base) as passed:
        pass_sections(task.source.value, base, "unread", called=True)
    named = {file for one in passed for file in one.files if file.is_file() or one.kind == _PROGRAM}
    for path in sorted({file for one in named for file in _inside(one)}):
        yield os.path.relpath(path, base), file_digest(path)


def _inside(path: Path) -> Iterator[Path]:
    """The file, or those of the folder of a program, without what is hidden or made by Python: .git, .venv, caches."""
    if path.is_file():
        yield path
    for one in sorted(path.iterdir()) if path.is_dir() else ():
        if not (one.name.startswith(".") or one.name == "__pycache__" or (one.is_dir() and one.is_symlink())):
            yield from _inside(one)


def plugins_of(task: Task, lms: Iterable[LMSpec]) -> Mapping[str, str]:
    """The versions of the plugins with the node kinds and models of the workflow, and with what decides its policy and
    perturbs its rows."""
    known = plugins()
    parts = (one for one in walk(task.workflow.tree) if is_dict(one))
    used = {("node_kinds", str(part.get("kind"))) for part in parts}
    used |= {("lms", split_model(spec.model)[0]) for spec in lms}
    used |= {("policies", name) for name in readers_of(task.spec.policy)}
    used |= {("claims", name.partition(".")[0]) for name in find_perturbations(task)}
    owners = {known.owner(kind, name) for kind, name in used if name in known.names(kind)}
    return {one.name: one.version for one in known.infos if one.name in owners}


def key_variables(lms: Iterable[LMSpec], runtime: Runtime) -> Iterator[str]:
    """The names of the environment variables that requests to the models depend on: keys, and addresses of servers."""
    for spec in lms:
        begin = f"{re.split('[/:]', spec.model)[0].upper()}_"  # gemini/NAME is the catch-all provider's
        yield from (name for name in os.environ if name.startswith(begin) and name.endswith(_OF_PROVIDERS))
        yield from _VARIABLE.findall(str(spec.extra or ""))  # in headers
        with suppress(WorkbenchError):
            name = spec.api_key_env or getattr(runtime.pool.get(spec), "key_variable", None)
            if name:
                yield name
