"""The distributions of this repository: commands to install them, and conflicting ones with the same package name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Written by docs/generate.py: by kind of thing, or "commands", the names that the distributions besides core, kit and
#: standard register, and the folder of each, so that an error can name the missing one.
CATALOG = Path(__file__).with_name("catalog.json")
#: The project's name: a distribution that only requires the others.
PROJECT = "agent-optimization-workbench"
_FOLDERS = ("kit", "standard", "dspy", "agents", "training", "watch", "scale", "research", "testing")
#: The distributions of this repository, each with its folder.
BUNDLED = {"workbench-core": "core", **{f"workbench-{name}": f"plugins/{name}" for name in _FOLDERS}}
_PACKAGE = "workbench"
#: Packages that results may depend on, besides our own version.
_TOLD = ("dspy", "litellm", "optuna", "numpy", "scipy", "torch", "transformers", "trl", "peft", "vllm")


def pip_install(asked: str) -> str:
    """Return the command that installs a distribution of ours with an extra, for error messages.

    asked: such as "training[grpo]". Our distributions are installed from a clone, since no index has them. Others come
    from the index.
    """
    name, bracket, extra = asked.partition("[")
    folder = BUNDLED.get(f"workbench-{name}")
    return (
        f"pip install -e './{folder}{bracket}{extra}' in your clone of {PROJECT}"
        if folder
        else f"pip install '{asked}'"
    )


@cache
def _read_catalog() -> dict[str, dict[str, str]]:
    import json  # only needed for errors

    return json.loads(CATALOG.read_text(encoding="utf-8"))


def how_to_get(kind: str, name: str) -> str:
    """Return a sentence on the distribution that provides something; "" if none of ours does.

    kind: such as "optimizers" or "commands". name: the registered name; for a command, with its groups.
    """
    home = _read_catalog().get(kind, {}).get(name)
    return f"It comes with workbench-{home}: {pip_install(home)}." if home else ""


def package_folder(name: str) -> Path | None:
    """Return the folder of a top-level package without importing it; None if it is not installed."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0]) if folders else None


def find_conflicting_distributions() -> Iterator[str]:
    """Yield warnings of other installed distributions with a package of our name. Only distributions named like the
    package are checked, because listing the files of all takes longer than the rest of the start."""
    found = {other.version: other.name for other in distributions(name=_PACKAGE) if _brings_package(other)}
    for version, name in found.items():  # the same one may be on the path twice
        yield (
            f"two distributions bring a package '{_PACKAGE}': workbench-core, which is this program, and {name} "
            f"{version}, which is not. They overwrite each other's files. Keep one in this environment: "
            f"pip uninstall {name}, then install workbench-core again."
        )


def _brings_package(distribution: Distribution) -> bool:
    named = (distribution.read_text("top_level.txt") or "").split()
    return _PACKAGE in named or any(file.parts[:1] == (_PACKAGE,) for file in distribution.files or ())


@cache  # reading the packages' metadata takes 10 ms
def describe_machine() -> dict[str, Any]:
    """Describe the machine of a run: system, processors, Python, and the versions of the packages that are
    installed."""
    import platform

    packages: dict[str, str] = {}
    for name in _TOLD:
        try:
            packages[name] = version_of(name)
        except PackageNotFoundError:
            continue
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "packages": packages,
    }
