"""What each agent needs: an environment of its own, with its framework."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What an agent of this folder needs, the framework first; its requirements.txt has all of it, with versions. The first
#: line of a quickstart says the same.
PACKAGES = {
    "openai": ["openai"],
    "openai_node": ["openai"],
    "anthropic": ["anthropic"],
    "openai_agents": ["openai-agents"],
    "langgraph": ["langgraph", "langchain-openai"],
    "pydantic_ai": ["pydantic-ai-slim[openai]"],
    "smolagents": ["smolagents[openai]"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "crewai": ["crewai"],
}


@dataclass(frozen=True)
class Installed:
    """programs: the folders that PATH needs. framework: its name and version. modules: those of Node, if it has any."""

    programs: list[Path]
    framework: str
    modules: Path | None = None

    @property
    def version(self) -> str:
        return self.framework.rpartition(" ")[2]


def packages_of(folder: Path) -> list[str]:
    """The packages of an agent, its framework first."""
    if folder.name in PACKAGES and folder.parent == Path(__file__).parent:
        return PACKAGES[folder.name]
    source = next(folder.glob("agent.*"))
    return [part.strip() for part in source.read_text(encoding="utf-8").splitlines()[0].lstrip("/# ").split(",")]


def install(folder: Path, place: Path, newest: bool = False) -> Installed:
    """Give an agent an environment below a folder, unless it has one there.

    newest: not the versions of its requirements.txt or package.json. Raises RuntimeError.
    """
    packages, home = packages_of(folder), place / folder.name
    if (folder / "agent.mjs").exists():
        return _install_modules(folder, home, packages, newest)
    python = home / "bin/python"
    if not python.exists():
        check([sys.executable, "-m", "venv", str(home)], place.parent)
    asked = ["--upgrade", *packages] if newest else packages
    if (pins := folder / "requirements.txt").exists() and not newest:
        asked = ["-r", str(pins)]
    check([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *asked], home)
    first = re.split(r"[\[=<>]", packages[0])[0]
    version = check([str(python), "-c", f"import importlib.metadata as m; print(m.version('{first}'))"], home)
    return Installed([python.parent], f"{first} {version}")


def _install_modules(folder: Path, home: Path, packages: list[str], newest: bool) -> Installed:
    if (npm := shutil.which("npm")) is None:
        raise RuntimeError("npm is not installed")
    home.mkdir(parents=True, exist_ok=True)
    if (pins := folder / "package.json").exists() and not newest:
        packages = [f"{name}@{version}" for name, version in json.loads(pins.read_text())["dependencies"].items()]
    elif newest:
        packages = [f"{_name_of(package)}@latest" for package in packages]
    modules = home / "node_modules"
    if newest or not all((modules / _name_of(package)).exists() for package in packages):
        if not (home / "package.json").exists():
            check([npm, "init", "-y"], home)
        check(
            [npm, "install", "--silent", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", *packages], home
        )
    first = _name_of(packages[0])
    version = json.loads((modules / first / "package.json").read_text())["version"]
    return Installed([modules / ".bin", Path(npm).parent], f"{first} {version}", modules)


def _name_of(package: str) -> str:
    """A package of npm without its version."""
    return re.sub(r"(?<=.)@[^@/]+\Z", "", package)


def check(command: list[str], folder: Path, **further: Any) -> str:
    """What a command prints. Raises RuntimeError if it fails."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **further
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout.strip()
