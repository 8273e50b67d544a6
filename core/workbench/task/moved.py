"""Sections of a file made for the doors that they pass, and rewritten for another folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.base.type_guards import change_at, is_dict, is_list
from workbench.errors import placed_at
from workbench.lm import enter_model, relocate_weights
from workbench.plugins import plugins
from workbench.spec import (
    PREFIX,
    SERVER,
    STAND_INS,
    WORD,
    Code,
    Passed,
    Place,
    Spec,
    collecting,
    read_outside,
    relocate_address,
    send_variables,
)
from workbench.task.alternatives import variants
from workbench.task.load import section_loaders
from workbench.task.rows import enter_rows
from workbench.workflow import Workflow, called_lms, written_place

#: Sections that are not read if a workflow is only called.
_UNUSED = ("data", "metric", "optimize", "proof", "search", "executor", "track", "attacks")
#: Sections in which all paths are rewritten, also to missing files or files to be written, such as labels.
_OF_FILES = ("data", "metric", "proof", "attacks")


def pass_sections(value: Any, base: Path, code: Code, *, called: bool = False) -> None:
    """Make the parts of a file for the doors that they pass, without rows. What is wrong is reported by the loader.

    value: the content of the file. base: its folder. called: it is called, not improved.
    """
    if not is_dict(value):
        return
    used = {k: v for k, v in value.items() if k in Spec.model_fields and v and not (called and k in _UNUSED)}
    try:
        spec = Spec.model_validate({**STAND_INS, **used})
    except ValidationError:
        return
    jobs = section_loaders(spec, base, [], code)
    if made := _tried(jobs["nodes"]):
        _tried(partial(_pass_searched, spec, made))
    if "metric" in used:
        _tried(jobs["metric"])
    for key, lm in (("lm",), spec.lm), *((("roles", role), one) for role, one in spec.roles.items()):
        if key[0] in used:
            with placed_at(*key):
                enter_model(lm, base)
    for place, one in enumerate(spec.configurations):
        with placed_at("configurations", place):
            enter_model(one.lm, base, "lm")
            _tried(section_loaders(spec.model_copy(update={"nodes": one.nodes or {}}), base, [], code)["nodes"])
    for key in ("file", "train", "val", "test"):
        if "data" in used and (location := getattr(spec.data, key)):
            with placed_at(*(("data",) if isinstance(value["data"], str) else ("data", key))):
                enter_rows(location, base)
    for place, entry in enumerate(spec.optimize):
        name, settings = next(iter(entry.items()))
        with placed_at("optimize", place, name):
            _tried(lambda: plugins().get("optimizers", name).model_validate(settings))  # noqa: B023
    if spec.proof.labels:
        read_outside(spec.proof.labels, base, "proof", "labels")
    if isinstance(spec.attacks, str):
        read_outside(spec.attacks, base, "attacks")


def _tried(job: Callable[[], Any]) -> Any:
    with suppress(Exception):  # also of a plugin's own: a result that was paid for is written in any case
        return job()


def _pass_searched(spec: Spec, workflow: Workflow) -> None:
    """Make each choice under `search:`, and combine the variables and servers of searched models."""
    names, hosts = set[str](), set[str]()
    for address, changed in variants(spec.search, workflow):
        lms = called_lms(changed, spec.lm)
        for lm in lms if {"lm", "embedder"} & {*address.split(".")} else ():
            sent = enter_model(lm, workflow.base)
            names, hosts = names | sent[0], hosts | sent[1]
    for host in sorted(hosts):
        for name in sorted(names):
            send_variables([name], host)


def move_tree(tree: Any, base: Path, folder: Path) -> Any:
    """Rewrite sections of a file in `base` for a file in another folder. Outside of `_OF_FILES`, a path that leads
    nowhere is not changed, nor is a value that only a program reads, such as an environment variable."""
    base, folder = base.resolve(), folder.resolve()
    with collecting(base) as found:
        pass_sections(tree, base, "unread")
    for one in dict.fromkeys(one for one in found if one.form and one.base == base):
        at = _written_at(tree, one.at)
        if one.form == "model":
            tree = change_at(tree, at, partial(relocate_weights, base=base, folder=folder))
        elif base != folder:
            tree = change_at(tree, at, partial(_moved, one, base, folder))
    return tree


def _written_at(tree: Any, place: Place) -> list[Any]:
    """Return the keys that lead to a place of the normal form; to the text that stands for a whole part, if it does."""
    found = list[Any]()
    for key in written_place(tree, place):
        if isinstance(tree, str):
            break
        tree = tree.get(key) if is_dict(tree) else tree[key] if is_list(tree) and key in range(len(tree)) else None
        found.append(key)
    return found


def _moved(one: Passed, base: Path, folder: Path, value: Any) -> Any:
    if is_list(value) and one.form == "command":  # a program next to the file; its arguments are not changed
        return [_moved_path(word, base, folder) if (base / str(word)).is_file() else word for word in value]
    if not isinstance(value, str) or (one.text not in value and value not in one.text):
        return value
    if one.form == "address":
        if value.startswith(PREFIX):
            return relocate_address(value, base, folder)
        return relocate_address(f"{PREFIX}{value}", base, folder).removeprefix(PREFIX)
    if one.form == "command":  # it runs in the folder of the file
        prefix = SERVER if value.startswith(SERVER) else ""
        command, mark, tool = value.removeprefix(prefix).rpartition("#")
        moved = WORD.sub(lambda word: _moved_path(word[0], base, folder), command or tool)
        return f"{prefix}{moved}{mark}{tool}" if command else f"{prefix}{moved}"
    path, mark, rest = value.partition("#") if one.text != value else (value, "", "")  # FILE#nodes.NAME
    certain = one.at[0] in _OF_FILES and ":" not in path  # READER:PLACE
    return f"{_moved_path(path, base, folder, certain)}{mark}{rest}"


def _moved_path(path: Any, base: Path, folder: Path, certain: bool = False) -> Any:
    if not isinstance(path, str) or not path or path.startswith(("-", "~")) or Path(path).is_absolute():
        return path
    return os.path.relpath(base / path, folder) if certain or os.path.lexists(base / path) else path
