"""The home of a row. It holds all that a program stores between starts, and is deleted with the row."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from workbench_external.config import ExternalConfig

#: Paths of the row's own files in its home: names and defaults of the XDG Base Directory Specification 0.8. Caches of
#: frameworks follow them (DSPy, CrewAI, LlamaIndex), or are in the working directory (LiteLLM, LangChain).
_OF_ROW = {
    "HOME": ".",
    "XDG_CONFIG_HOME": ".config",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_RUNTIME_DIR": "tmp",
    "TMPDIR": "tmp",
}
#: Further variables that name a place for state.
_MEMORIES = ("DSPY_CACHEDIR", "CREWAI_STORAGE_DIR")
#: Files downloaded or installed once per user, and read by rows: weights, vocabularies, browsers, packages. By
#: variable: the XDG variable and the path below it, from the documentation of each.
_DOWNLOADED = {
    "HF_HUB_CACHE": ("XDG_CACHE_HOME", "huggingface/hub"),
    "TORCH_HOME": ("XDG_CACHE_HOME", "torch"),
    "UV_CACHE_DIR": ("XDG_CACHE_HOME", "uv"),
    "UV_PYTHON_INSTALL_DIR": ("XDG_DATA_HOME", "uv/python"),
    "TIKTOKEN_CACHE_DIR": ("TMPDIR", "data-gym-cache"),
    "NLTK_DATA": ("HOME", "nltk_data"),
    "npm_config_cache": ("HOME", ".npm"),
    "PYTHONUSERBASE": ("HOME", ".local"),
    "PLAYWRIGHT_BROWSERS_PATH": (
        ("HOME", "Library/Caches/ms-playwright") if sys.platform == "darwin" else ("XDG_CACHE_HOME", "ms-playwright")
    ),
}


def home_variables(place: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a row's own home, caches and temporary files, and for the user's downloads.

    Args:
        place: the home of the row, with the directory `tmp`, which only we may read.
        env: the variables that the file names.
    """
    return {name: str(place / inside) for name, inside in _OF_ROW.items()} | _find_downloads(env)


def _find_downloads(env: Mapping[str, str]) -> dict[str, str]:
    """Return the locations of the user's downloads, so that rows need not fetch them again."""
    known = {"HOME": str(Path.home()), "TMPDIR": tempfile.gettempdir()} | {n: v for n, v in os.environ.items() if v}
    if home := env.get("HF_HOME") or known.get("HF_HOME"):  # the cache's own variable, if set, would win over it
        known["HF_HUB_CACHE"] = f"{home}/hub"
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        known.setdefault(name, f"{known['HOME']}/{_OF_ROW[name]}")
    return {name: known.get(name, f"{known[of]}/{inside}") for name, (of, inside) in _DOWNLOADED.items()}


def find_shared(env: Mapping[str, str]) -> list[str]:
    """List the variables of `env` that give all rows one home, cache or folder for temporary files.

    A relative path is in the row's working directory.
    """
    return [name for name in (*_OF_ROW, *_MEMORIES) if env.get(name, "").startswith(("/", "~", "$"))]


def describe_kept_state(config: ExternalConfig) -> str | None:
    """Describe state that outlives a row according to an agent's settings; None if there is none. A container is
    removed with its row."""
    if config.state == "kept":
        return "the agent keeps its state from row to row"
    if config.image is None and (shared := find_shared(config.env)):
        return f"all rows of the agent have one {shared[0]}, by `env`"
    return None
