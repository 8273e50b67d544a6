"""The doors that an existing agent passes (`workbench.spec`)."""

from __future__ import annotations

from pathlib import Path

from workbench.lm import enter_model
from workbench.spec import (
    VARIABLE,
    connect,
    existing,
    load_python,
    pass_door,
    send_variables,
    set_variables,
    start_program,
)
from workbench_external.config import ExternalConfig


def enter_agent(config: ExternalConfig, base: Path, now: bool = False) -> None:
    """Pass the doors to an agent itself. now: it is about to start, or to be asked."""
    if config.command is not None:
        start_program(" ".join(config.command), base, "command", now=now)
    if config.image is not None:
        pass_door("starts a program", f"the container image {config.image}", config.image, base, now=now)
    if config.mcp is not None:
        start_program(config.mcp.rpartition("#")[0] or config.mcp, base, "mcp", now=now)
    if config.python is not None:
        load_python(config.python, base, "python", now=now)
    for address in config.addresses:
        connect(address, now=now)
    for header, text in config.headers.items():
        send_variables(VARIABLE.findall(text), f"an address, as {header}", now=now)


def enter_settings(config: ExternalConfig, base: Path) -> None:
    """Pass the doors to an agent, its folder, its environment and its models."""
    enter_agent(config, base)
    if config.folder is not None:
        files = [path for path in existing(config.folder, base) if path.is_dir()]  # whose whole content counts
        what = str((base / config.folder).resolve())
        pass_door("starts a program", f"in the folder {config.folder}", what, base, ("folder",), files, "path")
    set_variables(config.env, base, "env")
    for name, lm in config.models.items():
        enter_model(lm, base, "models", name)
    for name, slot in (config.slots or {}).items():
        enter_model(slot.lm, base, "slots", name, "lm")
