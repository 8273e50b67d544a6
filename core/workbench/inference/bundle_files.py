"""The files that a workflow file names, and their places in a bundle.

Inside the folder of the workflow file a place stays as it is. What lies elsewhere goes to `outside/`, weights go to
`weights/`. Python files bring the modules beside them that they import. Nothing is imported or started.

One file: one collector, with a method for each kind of place.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from workbench.base.distribution import PROJECT as NAME
from workbench.base.type_guards import change_at, is_dict, is_list
from workbench.errors import SpecError
from workbench.lm import locate_weights, weights_folder
from workbench.spec import PREFIX, SERVER, VARIABLE, Place, Power, Written, load_yaml_file, parse_address, parse_server
from workbench.task import CALLED_KEYS, dump_yaml, find_powers

_LONGEST_NAME = 4096
#: How keys look: by a beginning that providers use, or by many letters and digits without a word among them.
_LIKE_A_KEY = re.compile(
    r"\b(?:sk|pk|rk|hf|gh[opsu]|github_pat|glpat|xox[abeoprs]|dop_v1|SG)[-_.][A-Za-z0-9]{3}|\b(?:AKIA|AIza)\w{8}"
    r"|^(?:Bearer|Basic) |(?=(?:[A-Za-z]*\d){3})(?=\d*[A-Za-z])[A-Za-z0-9+=]{16,}"
)
#: Settings of a model that hold keys.
_SECRET = re.compile(
    r"(?i)authorization|api[-_]?key|secret|password|(access|auth|session|bearer)[-_]?(token|key)|^-*(token|key|sig|signature)$"
)


@dataclass
class Contents:
    """The files of a bundle by their place in it, and what else it needs.

    copies: place to file or folder. texts: place to content. modules: imported and not carried. packages: lines of
    requirements.txt. variables: of the environment. extras: of our own distribution. notes: what is not carried.
    """

    copies: dict[str, Path] = field(default_factory=dict[str, Path])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    modules: set[str] = field(default_factory=set[str])
    packages: set[str] = field(default_factory=set[str])
    variables: set[str] = field(default_factory=set[str])
    extras: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])

    def unusual(self) -> list[str]:
        """List the carried files that are neither Python nor workflow files, and hidden ones, by their paths here."""
        files = [str(path) + (os.sep if path.is_dir() else "") for path in self.copies.values()]
        return sorted(name for name in files if not name.endswith(".py") or Path(name).name.startswith("."))

    def requirements(self) -> list[str]:
        """Lines of requirements.txt; what cannot be found among the installed distributions becomes a note."""
        found, brings = set(self.packages), importlib.metadata.packages_distributions() if self.modules else {}
        for module in sorted(self.modules):
            names = brings.get(module, [])
            if not names:
                self.notes.append(f"The module `{module}` is imported and not carried. Install it there.")
            found |= {f"{name}=={importlib.metadata.version(name)}" for name in names if name != NAME}
        return sorted(found)


class Collector:
    """Collects what workflow files name. root: the folder of the first one."""

    def __init__(self, root: Path):
        self.root, self.found = root.resolve(), Contents()
        self._outside: dict[Path, str] = {}
        self._weights: dict[str, str] = {}

    def rewrite(self, tree: Mapping[str, Any], base: Path, place: str) -> dict[str, Any]:
        """A workflow file as the bundle has it. What its things declare to lean on is collected, and nothing else.

        Args:
            tree: its content.
            base: the folder of the file.
            place: the folder in the bundle in which the file will be.
        """
        made: Any = dict(tree)
        found = find_powers(made, base, called=True, follow=False)
        for at in found.models:
            made = change_at(made, at, lambda lm: self._lm(lm, base, place))
        first: dict[Place, Power] = {}
        for power in found.powers:
            first.setdefault(power.at, power)
        for at, power in first.items():
            made = change_at(made, at, partial(self._moved, power, base, place))
        return made

    def _moved(self, power: Power, base: Path, place: str, value: Any) -> Any:
        """A value that names something, as the bundle names it."""
        if power.kind == "runs Python" and isinstance(value, str):
            return self._address(value, base, place)
        if power.kind == "reads a path" and isinstance(value, str):
            file, mark, rest = value.partition("#")
            return (
                self._named(file, base, place) + mark + rest
                if _existing(value, base) is None
                else self._named(value, base, place)
            )
        if power.kind == "starts a program":
            return self._program(power, value, base, place)
        if power.kind == "asks an address":
            check_address(str(value), ".".join(map(str, power.at)))
        return value

    def _program(self, power: Power, value: Any, base: Path, place: str) -> Any:
        if is_list(value):
            before = ["", *map(str, value)]
            return [
                self._words(word, base, place, before[n]) if isinstance(word, str) else word
                for n, word in enumerate(value)
            ]
        if not isinstance(value, str):
            return value
        if any(path.is_dir() for path in power.files):
            return self._named(value, base, place)
        if power.text.startswith("with "):  # a variable of its environment
            check_secret(str(power.at[-1]), value, ".".join(map(str, power.at)))
        if not value.startswith(SERVER):
            return self._words(value, base, place)
        self.found.extras.add("mcp")
        try:
            command = parse_server(value).command
        except SpecError:
            return value  # told when it is used
        return SERVER + self._words(command, base, place) + value[len(SERVER) + len(command) :]

    def _words(self, command: str, base: Path, place: str, option: str = "") -> str:
        """option: the word before."""
        self.found.variables |= set(VARIABLE.findall(command))
        made = list[str]()
        for word in re.split(r"([\s'\"=]+)", command):
            is_file = (path := _existing(word, base)) is not None and path.is_file()
            if word.strip(" \t\r\n'\"=") and not is_file:
                check_secret(
                    option if option.startswith("-") or made[-1:] == ["="] else "", word, "a word of a command"
                )
                option = word
            made.append(self._named(word, base, place) if is_file else word)
        return "".join(made)

    def _named(self, text: str, base: Path, place: str) -> str:
        """The path of a file or folder."""
        path = _existing(text, base)
        if path is None:
            return text
        if Path(text).is_absolute() and not path.is_relative_to(self.root):
            if path.is_file() and os.access(path, os.X_OK):
                self.found.notes.append(f"The program {text} must be there: it is not carried.")
                return text
            raise SpecError(
                f"{text} is an absolute path outside {self.root}, which another machine does not have",
                hint="Move it next to the workflow file, and write its path relative to that.",
            )
        if path == self.root or self.root.is_relative_to(path):
            self.found.notes.append(f"The folder '{text}' contains the workflow itself. Copy only the needed files.")
            return text
        return os.path.relpath(self._add(path), place or ".")

    def _address(self, address: str, base: Path, place: str) -> str:
        try:
            parsed = parse_address(address)
        except SpecError:
            return address  # a text that begins like one
        path = parsed.file(base)
        if path.is_file():
            return f"{PREFIX}{os.path.relpath(self._add(path), place or '.')}:{parsed.name}"
        if parsed.is_file:
            raise SpecError(f"there is no file {path}", hint="A bundle carries what the workflow names.")
        self.found.modules.add(parsed.module.partition(".")[0])
        return address

    def _lm(self, lm: Any, base: Path, place: str) -> Any:
        """The settings of a model; weights that are named by a folder are carried."""
        lm = locate_weights(lm, base)
        written = weights_folder(lm)
        if written is not None:
            folder = Path(written).expanduser()
            if not folder.exists():
                raise SpecError(f"there are no weights in {written}", hint="A bundle carries them: put them there.")
            name = self._weights.get(written) or _free(folder.name, self._weights.values())
            self._weights[written] = name
            self.found.copies[f"weights/{name}"] = folder.resolve()
            marked = Path("/bundle") / "weights" / name  # any root: what counts is the way from one to the other
            relative = os.path.relpath(marked, Path("/bundle") / place)
            lm = _with_place(lm, written, relative if relative.startswith(".") else f"./{relative}")
        self._note_lm(lm)
        return lm

    def _note_lm(self, lm: Any) -> None:
        settings: Mapping[str, Any] = lm if is_dict(lm) else {"model": lm}
        if settings.get("api_key_env"):
            self.found.variables.add(str(settings["api_key_env"]))
        check_address(str(settings.get("api_base") or ""), f"api_base of {settings.get('model')}")
        for one in Written(settings.get("extra"), ("extra",), self.root).texts():
            place = f"{'.'.join(map(str, one.at))} of {settings.get('model')}"
            if one.at != ("extra", "path"):
                check_secret(str(one.at[-1]), one.value, place)
                check_address(one.value, place)
            self.found.variables |= set(VARIABLE.findall(one.value))

    def _add(self, path: Path) -> str:
        """The place in the bundle of a file or folder, which is collected with what it needs."""
        place = self._place(path)
        if place in self.found.copies or place in self.found.texts:
            return place
        source = _workflow(path)
        if source is None:
            self.found.copies[place] = path
        else:
            self.found.texts[place] = ""  # files may refer to each other
            called = {key: value for key, value in source.items() if key in CALLED_KEYS}
            self.found.texts[place] = dump_yaml(self.rewrite(called, path.parent, os.path.dirname(place)))
        if path.suffix == ".py":
            self._add_imports(path)
        return place

    def _place(self, path: Path) -> str:
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        folder = self._outside.get(path.parent)
        if folder is None:
            folder = self._outside[path.parent] = _free(path.parent.name or "root", self._outside.values())
        return f"outside/{folder}/{path.name}"

    def _add_imports(self, file: Path) -> None:
        """Add what a Python file needs: modules beside it that it imports, files beside it that it names in a text, and
        variables of the environment."""
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            return  # told when it is loaded
        self.found.variables |= set(_variables(tree))
        for text in {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}:
            path = _existing(text, file.parent)
            if path is not None and path.is_file() and path.suffix and path.is_relative_to(file.parent):
                self._add(path)
        for module in _imports(tree):
            first = module.partition(".")[0]
            beside = [p for p in (file.parent / f"{first}.py", file.parent / first) if p.exists() and first]
            for path in beside:
                for inner in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                    self._add(inner.resolve())
            if not beside and first and first not in sys.stdlib_module_names and first != "workbench":
                self.found.modules.add(first)


def check_secret(name: str, value: str, place: str) -> None:
    """Raise SpecError for a value that is a key itself, by its name or by its look, and not the name of a variable."""
    if not VARIABLE.search(value) and (_SECRET.search(name) or _LIKE_A_KEY.search(value)):
        raise SpecError(
            f"{place} is written in the file and may be a key, and a bundle is passed on",
            hint="Name a variable of the environment instead: api_key_env: NAME, or $NAME in a header.",
        )


def check_address(address: str, place: str) -> None:
    """Raise SpecError for an address that holds a name, a password or a key."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return  # no address
    named = any(value and _SECRET.search(name) for name, value in parse_qsl(parts.query))
    if parts.netloc and ("@" in parts.netloc or named or _LIKE_A_KEY.search(parts.query)):
        raise SpecError(
            f"{place} contains a password or a key, and a bundle is passed on",
            hint="Write the address alone, and name a variable: api_key_env: NAME, or $NAME in a header.",
        )


def _with_place(lm: Any, written: str, place: str) -> Any:
    """The settings of a model with another folder."""
    if is_dict(lm):
        return {k: _with_place(v, written, place) if k in ("extra", "path", "model") else v for k, v in lm.items()}
    return lm[: -len(written)] + place if isinstance(lm, str) and lm.endswith(written) else lm


def _free(name: str, taken: Any) -> str:
    names = set(taken)
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 10_000))) if n not in names)


def _existing(text: str, base: Path) -> Path | None:
    """Resolve a text as a path, links followed; None where it is no path."""
    if not text.strip("./ ") or len(text) > _LONGEST_NAME or "\n" in text or "\0" in text:
        return None
    try:
        path = (base / text).resolve()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _workflow(path: Path) -> dict[str, Any] | None:
    """The content of a workflow file; None for any other file."""
    if path.suffix not in (".yaml", ".yml"):
        return None
    try:
        value = load_yaml_file(path).value
    except SpecError:
        return None
    return value if is_dict(value) and "nodes" in value else None


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def _variables(tree: ast.AST) -> Iterator[str]:
    """The names in os.environ["NAME"], os.environ.get("NAME") and os.getenv("NAME")."""
    named: Callable[[ast.AST], str] = ast.unparse
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and named(node.value).endswith("environ"):
            key: Any = node.slice
        elif isinstance(node, ast.Call) and node.args and re.search(r"(environ\.get|getenv)$", named(node.func)):
            key = node.args[0]
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value
