"""A finished workflow as a folder that runs on another machine: `workbench export --format bundle`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench._version import __version__
from workbench.base.distribution import PROJECT as NAME
from workbench.errors import PluginError, SpecError, WorkbenchError
from workbench.inference.bundle_files import Collector, Contents
from workbench.inference.loaded import read_workflow
from workbench.lm import is_loopback, make_lm, split_model
from workbench.plugins import plugins
from workbench.spec import LMSpec, Source, Spec
from workbench.task import called_tree, dump_yaml
from workbench.workflow import Workflow, called_lms

FILE = "workflow.yaml"
Ask = Callable[[Sequence[str]], None]
#: The extras that models of a provider need, by its prefix.
_EXTRAS = {"hf": "local", "llm": "llm"}

_README = """# {name}

{about}Made by workbench {version}. The folder can be moved as a whole; paths in it are relative.

    pip install -r requirements.txt
    workbench trust {file}
    workbench run {file} {inputs}

Further: `workbench predict {file} ROWS --out OUT`, `workbench serve {file}` and, from Python,
`workbench.load("{file}")`. If no package index has {distribution}, put its wheel into this folder
(`pip wheel --no-deps -w DIR CLONE`) and add `--find-links .` to the first line.

As a container:

    docker build -t {image} .
    docker run -p 8000:8000 -e WORKBENCH_SERVE_TOKEN {variables}{image}
{notes}"""

_DOCKERFILE = """FROM python:3.11-slim
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir --find-links . -r requirements.txt && useradd --create-home app
USER app
# What this folder names was read by whoever built the image.
ENV WORKBENCH_TRUST=/app
EXPOSE 8000
# Clients send the token in WORKBENCH_SERVE_TOKEN; without the variable it does not start.
CMD ["workbench", "serve", "{file}", "--host", "0.0.0.0"]
"""


@dataclass(frozen=True)
class Bundle:
    """A folder that was written. variables: of the environment, which it needs. notes: what it could not carry."""

    folder: Path
    files: tuple[str, ...]
    variables: tuple[str, ...]
    notes: tuple[str, ...]


def bundle_file(path: Path | Source, out: Path, ask: Ask | None = None) -> Bundle:
    """Bundle a workflow file, or one that was read before. Runs no Python that it names. Raises SpecError.

    ask: called with the files that are neither Python nor a workflow file, and with hidden ones; raises what refuses.
    """
    spec, source, workflow = read_workflow(path, (), "outlined")
    return write_bundle(spec, source.value, workflow, out, ask)


def write_bundle(spec: Spec, raw: Any, workflow: Workflow, out: Path, ask: Ask | None = None) -> Bundle:
    """Write a folder with a workflow and all that it names, without data, metric and budget. Runs no Python that it
    names.

    Args:
        spec: the file that the workflow comes from.
        raw: its content as written.
        workflow: what is written; its base is the folder of the file.
        out: the folder to make. It must not exist, or be empty.
        ask: as of `bundle_file`.

    Raises:
        SpecError: something cannot be carried, as an absolute path elsewhere.
        WorkbenchError: the folder cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out} exists and is not empty", hint="Name a new folder.")
    asked = {role for node in workflow.walk() for role in node.roles}
    found = _collect(called_tree(spec, raw, workflow), workflow.base, asked)
    lms = [*called_lms(workflow, spec.lm), *(lm for role, lm in spec.roles.items() if role in asked)]
    _note_models(lms, found)
    _note_plugins(workflow, lms, found)
    found.texts |= _guides(spec, workflow, found)
    if ask is not None and (unusual := found.unusual()):
        ask(unusual)
    try:
        _write(found, out)
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise WorkbenchError(f"{out} cannot be written: {error.strerror or error}") from error
    try:
        read_workflow(out / FILE, (), "outlined")
    except SpecError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise SpecError(f"the bundle would not load: {error}", hint="Nothing was written.") from None
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    return Bundle(out, tuple(files), tuple(sorted(found.variables)), tuple(found.notes))


def _collect(tree: Mapping[str, Any], base: Path, asked: Collection[str]) -> Contents:
    """The workflow file of the bundle, and what it names. asked: the roles that its nodes ask."""
    collector = Collector(base)
    kept = {key: value for key, value in tree.items() if key != "roles"}
    if roles := {role: lm for role, lm in (tree.get("roles") or {}).items() if role in asked}:
        kept["roles"] = roles
    written = collector.rewrite(kept, base, "")
    collector.found.texts[FILE] = dump_yaml({key: written[key] for key in tree if key in written})
    return collector.found


def _note_models(lms: Iterable[LMSpec], found: Contents) -> None:
    for lm in {lm.model_dump_json(): lm for lm in lms}.values():
        prefix = split_model(lm.model)[0]
        if prefix in _EXTRAS:
            found.extras.add(_EXTRAS[prefix])
        try:
            if prefix != "*" and (variable := getattr(make_lm(lm), "key_variable", None)):
                found.variables.add(variable)
        except (PluginError, SpecError):
            pass  # its extra is not here; it may be there
        if lm.api_base and is_loopback(lm.api_base):
            found.notes.append(
                f"The server of {lm.model}, {lm.api_base}, is on this machine. Elsewhere, and in a container, name "
                "another: --set lm.api_base=ADDRESS."
            )
        if prefix == "*" and not lm.api_key_env:
            found.notes.append(f"{lm.model} may need a key: set the variable that its provider reads.")


def _note_plugins(workflow: Workflow, lms: Iterable[LMSpec], found: Contents) -> None:
    """The distributions of plugins that bring nodes and models of the workflow, other than our own."""
    known = plugins()
    owners = {known.owner("lms", split_model(lm.model)[0]) for lm in lms}
    modules = {type(node).__module__.partition(".")[0] for node in workflow.walk()}
    for info in known.infos:
        if info.distribution != NAME and (info.name in owners or info.module.partition(".")[0] in modules):
            found.packages.add(f"{info.distribution}=={info.version}")


def _guides(spec: Spec, workflow: Workflow, found: Contents) -> dict[str, str]:
    """README.md, requirements.txt and Dockerfile."""
    extras = ",".join(sorted({"serve", *found.extras}))
    others = found.requirements()
    notes = list[str]()
    if found.variables:
        notes.append(f"\n## Needed there\n\nVariables of the environment: {', '.join(sorted(found.variables))}.\n")
    if found.notes:
        notes.append("\n## Not carried\n\n" + "".join(f"- {note}\n" for note in found.notes))
    text = _README.format(
        name=spec.name,
        about=f"{spec.description.strip()}\n\n" if spec.description.strip() else "",
        version=__version__,
        file=FILE,
        distribution=NAME,
        image="".join(c if c.isalnum() and c.isascii() else "-" for c in spec.name.lower()).strip("-") or "workflow",
        inputs=" ".join(f"--input {name}=..." for name in workflow.input_fields),
        variables="".join(f"-e {name} " for name in sorted(found.variables)),
        notes="".join(notes),
    )
    return {
        "README.md": text,
        "requirements.txt": "\n".join([f"{NAME}[{extras}]=={__version__}", *others]) + "\n",
        "Dockerfile": _DOCKERFILE.format(file=FILE),
    }


def _left_out(folder: Path) -> Callable[[str, list[str]], set[str]]:
    """Select the entries of a folder that are not copied: .env and .git, compiled code, and links out of it."""

    def names(place: str, all_: list[str]) -> set[str]:
        lost = {name for name in all_ if not Path(place, name).resolve().is_relative_to(folder)}
        return lost | {name for name in all_ if name.startswith(".") or name == "__pycache__"}

    return names


def _write(found: Contents, out: Path) -> None:
    clash = sorted(found.texts.keys() & found.copies.keys())
    if clash:
        message = f"the workflow names {clash[0]}, which the bundle writes itself"
        raise SpecError(message, hint="Rename the file.")
    out.mkdir(parents=True, exist_ok=True)
    for place, source in found.copies.items():
        target = out / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_left_out(source), dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
            os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
    for place, text in found.texts.items():
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        (out / place).write_text(text, encoding="utf-8")
