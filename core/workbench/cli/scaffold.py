"""`workbench plugin new`: writes a plugin project from the template in `workbench/cli/template`."""

from __future__ import annotations

import keyword
import re
import string
from pathlib import Path

from workbench.errors import SpecError
from workbench.plugins import plugins

TEMPLATE = Path(__file__).parent / "template"


def new_plugin(name: str, into: Path) -> Path:
    """Write a plugin project `workbench-NAME` into a folder and return its path.

    The template is plain text with $name, $dist, $module and $Class: four words need no template engine.
    Raises SpecError for an invalid or taken name, or an existing folder.
    """
    plain = name.removeprefix("workbench-").replace("-", "_").lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", plain) or keyword.iskeyword(plain):
        raise SpecError(f"'{name}' is not a valid plugin name", hint="Use letters, digits and -, e.g. tabu-search.")
    if plain in plugins().names("optimizers"):
        raise SpecError(f"an optimizer '{plain}' already exists", hint="Choose another name.")
    folder = into / f"workbench-{plain.replace('_', '-')}"
    if folder.exists():
        raise SpecError(f"{folder} already exists", hint="Choose another name, or --into another folder.")
    words = {
        "name": plain,
        "dist": folder.name,
        "module": f"workbench_{plain}",
        "Class": "".join(part.capitalize() for part in plain.split("_")),
    }
    for source in sorted(TEMPLATE.rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        relative = string.Template(str(source.relative_to(TEMPLATE)).replace("__module__", "${module}"))
        target = folder / relative.substitute(words).removesuffix(".txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(string.Template(source.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    return folder
