"""Settings from the command line and the environment, applied to a parsed file before it is checked.

Order: flag, then environment (WORKBENCH_*), then the file, then the user's config, then the default.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, suggest
from workbench.plugins import plugins
from workbench.spec.yaml_source import Source, load_yaml, load_yaml_file

#: Environment variables that set a place in the file.
ENVIRONMENT = {
    "WORKBENCH_LM": "lm",
    "WORKBENCH_SEED": "seed",
    "WORKBENCH_CONCURRENCY": "concurrency",
    "WORKBENCH_BUDGET_CALLS": "budget.calls",
    "WORKBENCH_BUDGET_TOKENS": "budget.tokens",
    "WORKBENCH_BUDGET_USD": "budget.usd",
    "WORKBENCH_BUDGET_MINUTES": "budget.minutes",
}


@dataclass(frozen=True)
class Setting:
    """One setting and where its value came from: flag, environment, file, config or default."""

    address: str
    value: Any
    origin: str


def parse_value(text: str) -> Any:
    """`0.3`, `true`, `[1, 2]` or text, read as YAML would."""
    try:
        return load_yaml(f"value: {text}", "--set").value["value"]
    except SpecError:
        return text


def config_file() -> Path:
    """The user's config: WORKBENCH_CONFIG, else ~/.config/workbench/config.yaml."""
    given = os.environ.get("WORKBENCH_CONFIG")
    root = Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))
    return Path(given) if given else root / "workbench" / "config.yaml"


def environment_settings() -> list[Setting]:
    """Settings from WORKBENCH_* variables."""
    given = ((variable, address) for variable, address in ENVIRONMENT.items() if os.environ.get(variable))
    return [
        Setting(address, parse_value(os.environ[variable]), f"environment {variable}") for variable, address in given
    ]


def config_settings() -> list[Setting]:
    """Settings from the user's config, which hold only where the file says nothing."""
    path = config_file()
    if not path.is_file():
        return []
    values = load_yaml_file(path).value
    return [
        Setting(key, value, f"config {path}") for key, value in values.items() if key in ("lm", "budget", "concurrency")
    ]


def all_outer_settings(value: Any) -> list[Setting]:
    """What config and environment add to a file's value, weakest first."""
    return [*(s for s in config_settings() if s.address not in value), *environment_settings()]


def outer_settings(source: Source) -> list[tuple[str, Any]]:
    """The same of a file that may have been overridden since, to be kept with a run: so another shell resumes the same
    run."""
    return [(s.address, s.value) for s in all_outer_settings(load_yaml(source.text, source.file).value)]


def apply_overrides(
    source: Source, flags: Sequence[tuple[str, Any]], kept: Sequence[tuple[str, Any]] | None = None
) -> Source:
    """The file's value with settings from outside put in; of flags for one address the last holds. kept:
    `outer_settings` of the run's start, in place of config and environment as they are now. Raises SpecError for an
    address that leads nowhere."""
    value, origins = copy.deepcopy(source.value), {}
    started = "environment or config of the run's start"
    around = (
        all_outer_settings(value) if kept is None else [Setting(address, given, started) for address, given in kept]
    )
    for setting in [*around, *(Setting(address, given, f"flag --set {address}") for address, given in flags)]:
        origins[_put(value, setting)] = setting.origin
    return source.with_value(value, origins)


def _put(value: Any, setting: Setting) -> tuple[str | int, ...]:
    """Set the value at the setting's address; returns the path that the address stands for."""
    parts, path = setting.address.split("."), list[str | int]()
    nodes = value.get("nodes")
    if parts[0] == "nodes" and len(parts) > 2 and isinstance(nodes, dict) and parts[1] not in nodes:
        if parts[2] not in plugins().names("node_kinds"):  # which would make a new node
            raise SpecError(f"{setting.origin}: there is no node '{parts[1]}'", hint=suggest(parts[1], nodes))
    for part in parts[:-1]:
        if isinstance(value, list):
            index = _index(value, part, setting)
            path.append(index)
            if path == ["optimize", index] and isinstance(value[index], str):
                value[index] = {value[index]: {}}
            value = value[index]
            continue
        if part == "lm" and isinstance(value.get("lm"), str):
            value["lm"] = {"model": value["lm"]}
        path.append(part)
        value = value.setdefault(part, {})
        if not isinstance(value, dict | list):
            raise SpecError(
                f"{setting.origin}: '{'.'.join(map(str, path))}' is no setting that has others inside",
                hint="Addresses look like budget.calls or nodes.answer.instructions.",
            )
    last: Any = _index(value, parts[-1], setting) if isinstance(value, list) else parts[-1]
    value[last] = setting.value
    return *path, last


def _index(value: list[Any], part: str, setting: Setting) -> int:
    if not part.isdigit() or int(part) >= len(value):
        raise SpecError(
            f"{setting.origin}: '{part}' is no place in a list of {len(value)}", hint="Places count from 0."
        )
    return int(part)
