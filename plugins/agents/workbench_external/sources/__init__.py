"""Texts in source files: a reader and writer for each syntax, with one public API.

passages                  definition of a text in a file
dialects                  templates: {name}, {{ name }}, $name, %s; margins
treatments                texts that a shell evaluates; changes of spaces and lines
python(_literals), docstrings  literals, f-strings, sums, joined lists, descriptions
javascript(_tokens)       JavaScript, TypeScript, JSX
segments                  texts of several literals, some of which stay
data                      JSON, YAML, TOML, INI, notebooks
markup                    XML, tables
shell, variables          programs of a shell; .env, makefiles
prose                     Markdown, plain text, template files
messages                  messages in a template, JSON strings in a text
folder                    the files of an agent, and the places of a text in them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import yaml

from workbench_external.sources.data import (
    read_ini,
    read_json,
    read_notebook,
    read_pyproject,
    read_toml,
    read_yaml,
)
from workbench_external.sources.javascript import read_javascript
from workbench_external.sources.markup import read_table, read_xml
from workbench_external.sources.messages import read_messages, read_strings
from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, compact, split
from workbench_external.sources.prose import read_prose, read_whole
from workbench_external.sources.python import read_python
from workbench_external.sources.shell import read_shell
from workbench_external.sources.variables import read_env, read_makefile

__all__ = ["CannotWrite", "Field", "Part", "Passage", "compact", "describe_syntax", "is_shell", "read_texts", "split"]

_JINJA, _MUSTACHE = partial(read_prose, ("jinja",)), partial(read_prose, ("mustache",))
_PROSE = partial(read_prose, None)
Reader = Callable[[str], Iterable[Passage]]
#: The reader of a file, by its suffix. Files of any other syntax are never written.
_READERS: dict[str, Reader] = {
    **dict.fromkeys((".py", ".pyi"), read_python),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), read_javascript),
    **dict.fromkeys((".json", ".jsonc", ".json5", ".jsonl", ".ndjson"), read_json),
    **dict.fromkeys((".yaml", ".yml"), read_yaml),
    ".toml": read_toml,
    **dict.fromkeys((".ini", ".cfg", ".conf"), read_ini),
    ".ipynb": read_notebook,
    ".xml": read_xml,
    **dict.fromkeys((".csv", ".tsv"), read_table),
    **dict.fromkeys((".sh", ".bash", ".zsh", ".ksh"), read_shell),
    ".env": read_env,
    ".mk": read_makefile,
    **dict.fromkeys((".md", ".mdc", ".txt", ".prompt", ".prompty", ".tmpl", ".tpl", ".template"), _PROSE),
    **dict.fromkeys((".jinja", ".jinja2", ".j2"), _JINJA),
    **dict.fromkeys((".mustache", ".hbs", ".handlebars"), _MUSTACHE),
}
_FOREIGN = {
    ".rb": "Ruby", ".php": "PHP", ".java": "Java", ".kt": "Kotlin", ".go": "Go",
    ".rs": "Rust", ".cs": "C#", ".swift": "Swift", ".pl": "Perl", ".lua": "Lua", ".ps1": "PowerShell", ".vue": "Vue",
    ".svelte": "Svelte", ".scala": "Scala", ".ex": "Elixir", ".exs": "Elixir", ".c": "C", ".cpp": "C++",
    ".mdx": "MDX", ".rst": "reStructuredText", ".html": "HTML",
}  # fmt: skip
#: Files whose texts are commands, whatever their syntax.
_OF_COMMANDS = re.compile(
    r"package(-lock)?\.json|(docker-)?compose[\w.-]*\.ya?ml|tasks\.json|setup\.cfg"
    r"|(tox|uwsgi|supervisord?)\.(ini|conf)|(docker|container|proc|jenkins|vagrant|gem|rake|brew|just)file|crontab",
    re.IGNORECASE,
)


#: The reader of a program without a suffix, by the name in its first line.
_SHEBANG = re.compile(r"#![^\n]*?\b(?:(?P<shell>(?:ba|da|z|k)?sh)|(?P<python>python)[\d.]*|(?P<javascript>node))\b")
_PROGRAMS: dict[str, Reader] = {"shell": read_shell, "python": read_python, "javascript": read_javascript}


def _reader_of(path: Path, source: str) -> Reader | None:
    if _OF_COMMANDS.fullmatch(path.name):
        return None
    if path.name == "pyproject.toml":
        return read_pyproject
    if path.name.lower() in ("makefile", "gnumakefile"):
        return read_makefile
    if path.name.startswith(".env"):
        return read_env
    if path.suffix or not source.startswith("#!"):
        return _READERS.get(path.suffix.lower()) if path.suffix else read_whole
    program = _SHEBANG.match(source)
    return _PROGRAMS[str(program.lastgroup)] if program is not None else None


def read_texts(path: Path, source: str) -> list[Passage] | None:
    """Return the texts of a file; None if its syntax is unknown or invalid."""
    if (reader := _reader_of(path, source)) is None:
        return None
    try:
        return [
            one
            for text in reader(source)
            for one in (text, *(() if text.is_raw else (*read_messages(text), *read_strings(text))))
        ]
    except (SyntaxError, ValueError, RecursionError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return None


def is_shell(path: Path, source: str) -> bool:
    """Return True for a shell program or a makefile."""
    return _reader_of(path, source) in (read_shell, read_makefile)


def describe_syntax(path: Path) -> str:
    """Return the reason why a file of this name is not written, as the end of a sentence."""
    if (language := _FOREIGN.get(path.suffix.lower())) is not None:
        return f"texts in {language} are not written"
    if _OF_COMMANDS.fullmatch(path.name):
        return "the text there may be a command, and is not written"
    if path.suffix.lower() in _READERS or path.name.startswith(".env") or path.name.lower().endswith("makefile"):
        return "the file cannot be read as what its name says"
    return f"the syntax of '{path.suffix or path.name}' is not known here"
