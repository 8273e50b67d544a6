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

from workbench.errors import SpecError
from workbench.yamlsource import Source, load_yaml, load_yaml_file

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


def outside_settings(flags: Sequence[tuple[str, Any]]) -> list[Setting]:
    """Settings from outside the file that override it, strongest first."""
    found = [Setting(address, value, "flag --set") for address, value in flags]
    for variable, address in ENVIRONMENT.items():
        if os.environ.get(variable):
            found.append(Setting(address, parse_value(os.environ[variable]), f"environment {variable}"))
    return found


def config_settings() -> list[Setting]:
    """Settings from the user's config, which hold only where the file says nothing."""
    path = config_file()
    if not path.is_file():
        return []
    values = load_yaml_file(path).value
    return [
        Setting(key, value, f"config {path}") for key, value in values.items() if key in ("lm", "budget", "concurrency")
    ]


def apply_overrides(source: Source, flags: Sequence[tuple[str, Any]]) -> Source:
    """The file's value with settings from outside put in. Raises SpecError for an address that leads nowhere."""
    value = copy.deepcopy(source.value)
    for setting in config_settings():
        value.setdefault(setting.address, setting.value)
    for setting in reversed(outside_settings(flags)):
        _put(value, setting)
    return source.with_value(value)


def _put(value: Any, setting: Setting) -> None:
    parts = setting.address.split(".")
    for index, part in enumerate(parts[:-1]):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
            continue
        if not isinstance(value, dict):
            raise SpecError(
                f"{setting.origin}: '{'.'.join(parts[:index])}' has no settings inside",
                hint="Addresses look like budget.calls or nodes.answer.instructions.",
            )
        if part == "lm" and isinstance(value.get("lm"), str):
            value["lm"] = {"model": value["lm"]}
        value = value.setdefault(part, {})
    if not isinstance(value, dict):
        raise SpecError(f"{setting.origin}: '{setting.address}' is no setting")
    value[parts[-1]] = setting.value
