"""`workbench plugin new`: writes a plugin project from the templates next to this file."""

from __future__ import annotations

import keyword
import re
import string
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import SpecError, suggest
from workbench.plugins import KINDS, plugins

_TEMPLATES = Path(__file__).parent / "template"
_OPTIMIZE = "workbench optimize workflow.yaml"


@dataclass(frozen=True)
class PluginKind:
    """The differences between kinds of plugins.

    Args:
        table: the kind of registration, as in `workbench.plugins.KINDS`.
        file: the module with the target.
        target: its name in the module, as a template.
        try_it: a line of the README.
        rows: True if its workflow reads `rows.jsonl`.
        dependencies: of the project, in addition to workbench.
    """

    table: str
    file: str
    target: str
    try_it: str
    rows: bool = False
    dependencies: str = ""


PLUGIN_KINDS = {
    "optimizer": PluginKind("optimizers", "optimizer", "$Class", _OPTIMIZE, rows=True),
    "node": PluginKind("node_kinds", "node", "$Class", _OPTIMIZE, rows=True),
    "metric": PluginKind("metrics", "metric", "$Class", "workbench eval workflow.yaml", rows=True),
    "reader": PluginKind("readers", "reader", "read", "workbench eval workflow.yaml"),
    "lm": PluginKind(
        "lms",
        "provider",
        "open_lm",
        "workbench run FILE --set 'lm={model: $name/NAME, api_base: ADDRESS}' --input text=hello",
        dependencies=', "workbench-kit>=0.1", "aiohttp>=3.13"',
    ),
    "sandbox": PluginKind("sandboxes", "sandbox", "open_sandbox", "workbench plugin sandbox list"),
    "executor": PluginKind(
        "executors",
        "executor",
        "$Class",
        "workbench eval FILE --executor $name",
        dependencies=', "workbench-scale>=0.1"',
    ),
    "exporter": PluginKind("exporters", "exporter", "export", "workbench export last --format $name --out prompts.md"),
}


def new_plugin(name: str, into: Path, kind: str = "optimizer") -> Path:
    """Write a plugin project `workbench-NAME` of a kind, one of PLUGIN_KINDS, into a folder and return its path.

    The templates are plain text with $name, $dist and the like: a few words need no template engine.

    Raises:
        SpecError: an invalid or taken name, an unknown kind, or a folder that exists.
    """
    if kind not in PLUGIN_KINDS:
        raise SpecError(f"there is no template for a plugin of the kind '{kind}'", hint=suggest(kind, PLUGIN_KINDS))
    made = PLUGIN_KINDS[kind]
    plain = name.removeprefix("workbench-").replace("-", "_").lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", plain) or keyword.iskeyword(plain):
        raise SpecError(f"'{name}' is not a valid plugin name", hint="Use letters, digits and -, e.g. tabu-search.")
    if plain in plugins().names(made.table):
        what = KINDS[made.table]
        raise SpecError(
            f"{'an' if what[0] in 'aeo' else 'a'} {what} '{plain}' already exists", hint="Choose another name."
        )
    folder = into / f"workbench-{plain.replace('_', '-')}"
    if folder.exists():
        raise SpecError(f"{folder} already exists", hint="Choose another name, or --into another folder.")
    words = {
        "name": plain,
        "NAME": plain.upper(),
        "dist": folder.name,
        "module": f"workbench_{plain}",
        "Class": "".join(part.capitalize() for part in plain.split("_")),
        "what": KINDS[made.table],
        "table": made.table,
        "file": made.file,
        "dependencies": made.dependencies,
    }
    words |= {key: string.Template(getattr(made, key)).substitute(words) for key in ("target", "try_it")}
    for templates in ("common", kind, *(("rows",) if made.rows else ())):
        _copy(_TEMPLATES / templates, folder, words)
    return folder


def _copy(templates: Path, folder: Path, words: dict[str, str]) -> None:
    """Write each template below a folder, with its variables filled in. Template names end in .txt, so that no tool
    takes them for code."""
    for source in sorted(templates.rglob("*.txt")):
        relative = str(source.relative_to(templates)).removesuffix(".txt")
        target = folder / relative.replace("__module__", words["module"]).replace("__name__", words["name"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(string.Template(source.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
