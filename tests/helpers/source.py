"""The source of the project, parsed once: what tests of its layout and of its habits read."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


CORE = ROOT / "core" / "workbench"
KIT = ROOT / "plugins" / "kit" / "workbench_kit"
#: The packages of plugins, and those that plugins share, by their names.
PACKAGES = {path.name: path for path in sorted((ROOT / "plugins").glob("*/workbench_*")) if path.is_dir()}


@cache
def parsed(path: Path) -> ast.Module:
    gc.disable()  # a tree stays, and looking through all of them for garbage takes five sixths of the time
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.freeze()
        gc.enable()


def modules(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*.py")) if "template" not in p.parts]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a tree, without their expressions: a tenth of its nodes."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        inside = getattr(tree, part, ())
        for node in inside if isinstance(inside, list) else ():
            yield node
            yield from statements(node)


def imports(tree: ast.AST) -> Iterator[str]:
    """What is imported, wherever it stands, as dotted names."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported(path: Path) -> tuple[str, ...]:
    return tuple(imports(parsed(path)))


def module_of(path: Path) -> str:
    """The dotted name of a module of core or of a package of `PACKAGES`."""
    depth = 1 if CORE in path.parents else 2
    parts = path.relative_to(ROOT).with_suffix("").parts[depth:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def texts(path: Path) -> Iterator[str]:
    """The strings of a file that are not documentation."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(n.body[0].value)
        for n in ast.walk(parsed(path))
        if isinstance(n, documented) and n.body and isinstance(n.body[0], ast.Expr)
    }
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def files(*folders: str) -> list[Path]:
    return [p for folder in folders for p in modules(ROOT / folder)]


def named(paths: list[Path]) -> dict[str, Path]:
    return {str(p.relative_to(ROOT)): p for p in paths}
