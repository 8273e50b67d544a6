"""Settings from the command line, the environment and the user's config, applied to a parsed file before it is checked.

Order of precedence: flag, environment (WORKBENCH_*), file, config, default.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import PluginError, SpecError, suggest
from workbench.plugins import plugins
from workbench.spec.yaml_source import Source, load_yaml, load_yaml_file

#: Environment variables, each with the address that it sets.
ENVIRONMENT = {
    "WORKBENCH_LM": "lm",
    "WORKBENCH_SEED": "seed",
    "WORKBENCH_CONCURRENCY": "concurrency",
    "WORKBENCH_TRACK": "track",
    "WORKBENCH_BUDGET_CALLS": "budget.calls",
    "WORKBENCH_BUDGET_TOKENS": "budget.tokens",
    "WORKBENCH_BUDGET_USD": "budget.usd",
    "WORKBENCH_BUDGET_MINUTES": "budget.minutes",
}
#: Sections allowed in the user's config.
_IN_CONFIG = ("lm", "budget", "concurrency", "track")


@dataclass(frozen=True)
class Setting:
    """A setting with the origin of its value: flag, environment, file, config or default."""

    address: str
    value: Any
    origin: str


def parse_value(text: str) -> Any:
    """Parse a text such as `0.3`, `true` or `[1, 2]` as YAML."""
    try:
        return load_yaml(f"value: {text}", "--set").value["value"]
    except SpecError:
        return text


def config_file() -> Path:
    """Return the path of the user's config: WORKBENCH_CONFIG, else ~/.config/workbench/config.yaml."""
    given = os.environ.get("WORKBENCH_CONFIG")
    root = Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config"))
    return Path(given) if given else root / "workbench" / "config.yaml"


def environment_settings() -> list[Setting]:
    """Return the settings from WORKBENCH_* variables."""
    given = ((variable, address) for variable, address in ENVIRONMENT.items() if os.environ.get(variable))
    return [
        Setting(address, parse_value(os.environ[variable]), f"environment {variable}") for variable, address in given
    ]


def config_settings() -> list[Setting]:
    """Return the settings from the user's config, which apply only if the file does not set them."""
    path = config_file()
    if not path.is_file():
        return []
    values = load_yaml_file(path).value
    return [Setting(key, value, f"config {path}") for key, value in values.items() if key in _IN_CONFIG]


def _outer_settings(value: dict[str, Any]) -> list[Setting]:
    """List the settings that config and environment add to a file's value, weakest first."""
    return [*(s for s in config_settings() if s.address not in value), *environment_settings()]


def outer_settings(source: Source) -> list[tuple[str, Any]]:
    """Return (address, value) of the settings that config and environment add to a file. They are stored with a run, so
    that a resumed run does not depend on the shell."""
    return [(s.address, s.value) for s in _outer_settings(load_yaml(source.text, source.file).value)]


def apply_overrides(
    source: Source, flags: Sequence[tuple[str, Any]], kept: Sequence[tuple[str, Any]] | None = None
) -> Source:
    """Return the file with outer settings applied to its value. A price belongs to its model: setting `lm.model`
    without `lm.price` removes the price.

    Args:
        source: the file.
        flags: (address, value) of each `--set`; the last one for an address wins.
        kept: `outer_settings` from the start of the run, in place of the current config and environment.

    Raises:
        SpecError: an address leads nowhere.
    """
    value, origins = copy.deepcopy(source.value), dict[tuple[str | int, ...], str]()
    started = "environment or config of the run's start"
    around = _outer_settings(value) if kept is None else [Setting(address, given, started) for address, given in kept]
    given = [*around, *(Setting(address, new, f"flag --set {address}") for address, new in flags)]
    for setting in given:
        origins[_put(value, setting)] = setting.origin
    _forget_prices(value, source.value, [setting.address for setting in given])
    return source.with_value(value, origins)


def _forget_prices(value: Any, before: Any, addresses: Sequence[str]) -> None:
    """Remove a model's price from the file if another model was set in its place without a price."""
    for place in (address.removesuffix(".model") for address in addresses if address.endswith(".model")):
        if {place, f"{place}.price"} & {*addresses}:
            continue
        now, then = _at(value, place), _at(before, place)
        if not is_dict(now) or not is_dict(then) or now.get("model") == then.get("model"):
            continue
        price = now.pop("price", None)
        if own := {k: v for k, v in price.items() if f"{place}.price.{k}" in addresses} if is_dict(price) else {}:
            now["price"] = own


def _at(value: Any, address: str) -> Any:
    """Return the value at an address; None if there is none."""
    for part in address.split("."):
        inside: dict[Any, Any] = {str(i): one for i, one in enumerate(value)} if is_list(value) else value
        value = inside.get(part) if is_dict(inside) else None
    return value


def _put(value: Any, setting: Setting) -> tuple[str | int, ...]:
    """Set the value at the setting's address. Returns the path that the address stands for."""
    parts, path = setting.address.split("."), list[str | int]()
    if parts[0] == "executor" and (len(parts) > 1 or isinstance(setting.value, str)):
        name = parts[1] if len(parts) > 1 else setting.value
        written = value.get("executor")
        value["executor"] = {name: written.get(name) or {} if is_dict(written) else {}}  # it replaces another executor
        if len(parts) < 3 and isinstance(setting.value, str | None):
            return ("executor",)
    nodes = value.get("nodes")
    if parts[0] == "nodes" and len(parts) > 2 and is_dict(nodes) and parts[1] not in nodes:
        if parts[2] not in plugins().names("node_kinds"):  # which would make a new node
            raise SpecError(f"{setting.origin}: there is no node '{parts[1]}'", hint=suggest(parts[1], nodes))
    for part in parts[:-1]:
        value = _enter(value, part, path, setting)
    last: Any = _index(value, parts[-1], setting) if is_list(value) else parts[-1]
    value[last] = setting.value
    return *path, last


def _enter(value: dict[str, Any] | list[Any], part: str, path: list[str | int], setting: Setting) -> Any:
    """Return the mapping or list under one part of an address, created if missing. Short forms are expanded. path: of
    value; the part is appended to it."""
    if is_list(value):
        index = _index(value, part, setting)
        path.append(index)
        if path == ["optimize", index] and isinstance(value[index], str):
            value[index] = {value[index]: {}}
        inner = value[index]
    else:
        settings = cast(dict[str, Any], value)
        if part == "lm" and isinstance(settings.get("lm"), str):
            settings["lm"] = {"model": settings["lm"]}
        if (kind := written_key(settings, part)) != part:
            settings |= {"kind": kind, part: settings.pop(kind)}
        path.append(part)
        inner = settings.setdefault(part, {})
    if not is_dict(inner) and not is_list(inner):
        raise SpecError(
            f"{setting.origin}: '{'.'.join(map(str, path))}' is not a setting that has others inside",
            hint="Addresses look like budget.calls or nodes.answer.instructions.",
        )
    return inner


def written_key(node: Mapping[str, Any], name: str) -> str:
    """Return the key of a setting as written: `{ensemble: NODE}` is short for `{kind: ensemble, of: NODE}`."""
    if name not in node and "kind" not in node:
        with suppress(PluginError):  # reported when the kind is used
            kinds = (key for key in node if key in plugins().names("node_kinds"))
            return next((key for key in kinds if plugins().get("node_kinds", key).primary == name), name)
    return name


def _index(value: list[Any], part: str, setting: Setting) -> int:
    if not part.isdigit() or int(part) >= len(value):
        raise SpecError(
            f"{setting.origin}: '{part}' is not a place in a list of {len(value)}", hint="Places count from 0."
        )
    return int(part)
