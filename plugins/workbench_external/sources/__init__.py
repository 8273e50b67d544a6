"""Texts in source files: a reader and writer for each syntax, behind one door.

passages                  what a text in a file is
dialects                  templates: {name}, {{ name }}, $name, %s; margins
python, docstrings        literals, f-strings, sums, joined lists, descriptions
javascript(_tokens)       JavaScript, TypeScript, JSX
data                      JSON, YAML, TOML, INI, notebooks
prose                     Markdown, plain text, files of templates
folder                    the files of an agent, and what of a text stands in them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import yaml

from workbench_external.sources.data import read_ini, read_json, read_notebook, read_toml, read_yaml
from workbench_external.sources.dialects import readings
from workbench_external.sources.javascript import read_javascript
from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, compact, split
from workbench_external.sources.prose import read_prose
from workbench_external.sources.python import read_python

__all__ = ["CannotWrite", "Field", "Part", "Passage", "compact", "describe_syntax", "read_texts", "readings", "split"]

_JINJA, _MUSTACHE = partial(read_prose, ("jinja",)), partial(read_prose, ("mustache",))
_PROSE = partial(read_prose, None)
#: The reader of a file, by its suffix. A file of any other syntax is never written.
_READERS: dict[str, Callable[[str], Iterable[Passage]]] = {
    **dict.fromkeys((".py", ".pyi"), read_python),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), read_javascript),
    **dict.fromkeys((".json", ".jsonc", ".json5"), read_json),
    **dict.fromkeys((".yaml", ".yml"), read_yaml),
    ".toml": read_toml,
    **dict.fromkeys((".ini", ".cfg"), read_ini),
    ".ipynb": read_notebook,
    **dict.fromkeys((".md", ".mdc", ".txt", ".prompt", ".prompty"), _PROSE),
    **dict.fromkeys((".jinja", ".jinja2", ".j2"), _JINJA),
    **dict.fromkeys((".mustache", ".hbs", ".handlebars"), _MUSTACHE),
}
_FOREIGN = {
    ".sh": "shell", ".bash": "shell", ".rb": "Ruby", ".php": "PHP", ".java": "Java", ".kt": "Kotlin", ".go": "Go",
    ".rs": "Rust", ".cs": "C#", ".swift": "Swift", ".pl": "Perl", ".lua": "Lua", ".ps1": "PowerShell", ".vue": "Vue",
    ".svelte": "Svelte", ".scala": "Scala", ".ex": "Elixir", ".exs": "Elixir", ".c": "C", ".cpp": "C++",
    ".mdx": "MDX", ".rst": "reStructuredText", ".html": "HTML", ".xml": "XML", ".csv": "tables", ".tsv": "tables",
    ".jsonl": "rows of data", ".env": "files of variables",
}  # fmt: skip
#: Files whose texts are commands, whatever their syntax.
_OF_COMMANDS = re.compile(
    r"package(-lock)?\.json|pyproject\.toml|(docker-)?compose[\w.-]*\.ya?ml|tasks\.json|setup\.cfg"
    r"|(tox|uwsgi|supervisord?)\.ini",
    re.IGNORECASE,
)


def read_texts(path: Path, source: str) -> list[Passage] | None:
    """The texts of a file; None for one of a syntax that is not known, or which it does not have."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None or _OF_COMMANDS.fullmatch(path.name):
        return None
    try:
        return [*reader(source)]
    except (SyntaxError, ValueError, RecursionError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return None


def describe_syntax(path: Path) -> str:
    """Why nothing is written in a file of this name, as the end of a sentence."""
    if (language := _FOREIGN.get(path.suffix.lower())) is not None:
        return f"texts in {language} are not written"
    if _OF_COMMANDS.fullmatch(path.name):
        return "the text there may be a command, and is not written"
    if path.suffix.lower() in _READERS:
        return "the file cannot be read as what its name says"
    return f"the syntax of '{path.suffix or path.name}' is not known here"
