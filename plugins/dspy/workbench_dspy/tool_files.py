"""The Python files of tools, copied into the folder of an exported program."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from workbench.errors import SpecError
from workbench.spec import Address

#: The package, inside the exported folder, with the copies.
PACKAGE = "program_tools"


class ToolFiles:
    """Collects the functions that a program calls: the imports, and the files to copy.

    `imports`: lines of Python. `copies`: the content by the name of its module in PACKAGE. `needs`: packages that the
    tools import, without Python's own.
    """

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.copies: dict[str, str] = {}
        self.needs: dict[str, None] = {}
        self._names: dict[Path, str] = {}
        self._aliases: dict[tuple[str, str], str] = {}

    def add(self, address: Address, base: Path, where: str) -> str:
        """Add a function, and return the name to call it by. where: the address of the node, for SpecError."""
        path = address.file(base)
        module = f"{PACKAGE}.{self._copy(path, where)}" if path.is_file() else address.module
        if (module, address.name) not in self._aliases:
            alias = address.name
            while alias in self._aliases.values():
                alias += "_"
            self._aliases[module, address.name] = f"tool_{alias}"
            self.imports[f"from {module} import {address.name} as tool_{alias}"] = None
        return self._aliases[module, address.name]

    def _copy(self, path: Path, where: str) -> str:
        if path in self._names:
            return self._names[path]
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if any(isinstance(node, ast.Name) and node.id == "__file__" for node in ast.walk(tree)):
            raise SpecError(
                f"{where}: {path.name} looks for files beside itself (__file__), which a copy would not find",
                hint="Pass the folder as an argument, or install the tools as a package: python:package.module:name.",
            )
        for node in ast.walk(tree):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
            self.needs |= dict.fromkeys(sorted(packages))
        name = "".join(c if c.isalnum() else "_" for c in path.stem)
        name = name if name.isidentifier() else f"tools_{name}"
        while name in self.copies:
            name += "_"
        self.copies[name], self._names[path] = text, name
        return name
