"""The ways to pass a program its input, the likeliest first."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench_external.init.columns import Columns, as_name
from workbench_external.init.hints import Hints
from workbench_external.init.program import Program

#: Names of options and JSON keys that have the input in most programs.
_USUAL = (
    *("question", "text", "input", "query", "prompt", "message", "q", "content", "ticket", "request", "body", "email"),
    *("document", "sentence", "task", "user_input", "user_message", "instruction", "problem", "review", "letter"),
)
#: Options that never hold the input.
_NO_INPUT = {"--help", "--version", "--verbose", "--debug", "--model", "--config", "--output", "--temperature"}
#: Maximum options and keys to try.
_MAX_OPTIONS, _MAX_KEYS = 4, 24
_USUAL_FILE = re.compile(rf"(?:^|/)(?:{'|'.join(_USUAL)})s?\.(?:txt|json|md)$")
_FILE_OPTION = re.compile(r"^--(?!.*out)(?:.*(?:file|path|input|source|document)|in$|from$|src$)")
_PLACE = re.compile(r"\{(\w+)\}")
_IN_HELP = re.compile(r"(?<![\w-])(--[a-zA-Z][\w-]*)[ =]+(?:<\w+>|\[?[A-Z][A-Z_]+\]?|string|str|text)(?![\w-])")


@dataclass(frozen=True)
class Way:
    """A way to pass an input.

    told: its description. inputs: the columns, by their names for the agent. words: appended to the command.
    shell: a line of sh, with COMMAND in place of the command. env: variables with an input.
    """

    told: str
    stdin: str
    inputs: Mapping[str, str]
    words: tuple[str, ...] = ()
    shell: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command of an agent in this way."""
        whole = [*words, *self.words]
        return ["sh", "-c", self.shell.replace("COMMAND", shlex.join(whole))] if self.shell else whole


def first_ways(program: Program, columns: Columns, hints: Hints) -> list[Way]:
    """Return the ways that can be derived without a start of the program."""
    main, all_ = {as_name(columns.main): columns.main}, {as_name(name): name for name in columns.others}
    command = program.words
    if program.function:
        return [Way("arguments of the function", "json", _parameters(program, columns) or main)]
    if placed := [name for word in command for name in _PLACE.findall(word) if name in all_]:
        return [Way("where the command says so", "none", {name: all_[name] for name in placed})]
    as_json = Way("JSON on stdin", "json", all_)
    text = Way("text on stdin", "text", main)
    argument = Way("the last argument", "none", main, (f"{{{as_name(columns.main)}}}",))
    options = option_ways(hints.options, columns)
    piped = [as_json, text] if hints.json else [text, as_json]
    if hints.arguments and not hints.stdin:
        return [*options, argument, *piped]
    return [*piped, *options, argument] if hints.stdin else [text, argument, as_json, *options]


def rarer_ways(columns: Columns, hints: Hints, folder: Path | None) -> list[Way]:
    """Return ways to try after the usual ones: variables, several arguments, files in a copy of the folder."""
    name, found = as_name(columns.main), list[Way]()
    main = {name: columns.main}
    for variable in hints.variables:
        if variable.lower() in _USUAL and variable not in os.environ:
            found.append(Way(f"the variable {variable}", "none", main, env={variable: f"{{{name}}}"}))
    if hints.arguments and len(columns.others) > 1:
        words = tuple(f"{{{as_name(one)}}}" for one in columns.others)
        found.append(Way("an argument for each column", "none", {as_name(n): n for n in columns.others}, words))
    if 1 < hints.questions <= len(columns.others):  # the longest text is most often asked for last
        asked = [*[one for one in columns.others if one != columns.main][1 - hints.questions :], columns.main]
        lines = {f"LINE_{n}": f"{{{as_name(one)}}}" for n, one in enumerate(asked, 1)}
        told = " ".join(f'"${line}"' for line in lines)
        inputs, shell = {as_name(one): one for one in asked}, f"printf '%s\\n' {told} | COMMAND"
        found.append(Way("a line for each question", "none", inputs, shell=shell, env=lines))
    if folder is None:
        return found
    for file in [one for one in hints.files if _USUAL_FILE.search(one)][:_MAX_OPTIONS]:
        stdin = "json" if file.endswith(".json") else "text"
        made = f"mkdir -p {shlex.quote(str(Path(file).parent))} && cat > {shlex.quote(file)} && exec COMMAND"
        inputs = {as_name(one): one for one in columns.others} if stdin == "json" else main
        found.append(Way(f"the file {file}", stdin, inputs, shell=made))
    shell = "cat > input.txt && exec COMMAND"
    if hints.arguments:
        found.append(Way("a file, its last argument", "text", main, ("input.txt",), shell=shell))
    for option in [one for one in hints.options if _FILE_OPTION.search(one)][:_MAX_OPTIONS]:
        found.append(Way(f"a file, by the option {option}", "text", main, (option, "input.txt"), shell=shell))
    return found


def ended_way(way: Way, word: str) -> Way:
    """Return the way for a conversation: the input, and then a line with the word that ends it."""
    line = f"{{ cat; echo {shlex.quote(word)}; }} | COMMAND"
    return Way(f"{way.told}, then the line {word}", way.stdin, way.inputs, way.words, line)


def option_ways(options: Sequence[str], columns: Columns) -> list[Way]:
    """Return the ways by an option of the command line. Options named like a column get that column."""
    named = {option: option.strip("-").replace("-", "_").lower() for option in options if option not in _NO_INPUT}
    own = {option: name for name in columns.others for option, word in named.items() if word == as_name(name).lower()}
    found = list[Way]()
    if own:
        words = tuple(word for option, name in own.items() for word in (option, f"{{{as_name(name)}}}"))
        found.append(Way(f"the options {', '.join(own)}", "none", {as_name(n): n for n in own.values()}, words))
    rest = sorted((one for one in named if one not in own), key=lambda one: named[one] not in _USUAL)
    main = as_name(columns.main)
    for option in rest[:_MAX_OPTIONS]:
        found.append(Way(f"the option {option}", "none", {main: columns.main}, (option, f"{{{main}}}")))
    return found


def options_in_help(printed: str) -> list[str]:
    """Return the options with a value in a program's help."""
    return [*dict.fromkeys(_IN_HELP.findall(printed))]


def key_way(columns: Columns, hints: Hints, told: str) -> Way | None:
    """Return a way that passes the main column under each key that a program may read, to see which one it reads.

    told: messages of failed starts, which may name a missing key.
    """
    missing = re.findall(
        r"KeyError: ['\"](\w+)['\"]|field '?(\w+)'? (?:is )?required|missing.{0,20}['\"](\w+)['\"]", told
    )
    keys = [name for found in missing for name in found if name]
    keys += sorted(hints.keys, key=lambda key: key.lower() not in _USUAL)
    keys = [
        key for key in dict.fromkeys(keys) if key not in columns.others and key != columns.label and key.isidentifier()
    ]
    return Way("JSON on stdin", "json", dict.fromkeys(keys[:_MAX_KEYS], columns.main)) if keys else None


def one_key_way(columns: Columns, key: str) -> Way:
    """Return a way that passes the main column under another name, and the other columns under their own."""
    others = {as_name(name): name for name in columns.others if name != columns.main}
    return Way(f"JSON on stdin, with the key {key}", "json", {key: columns.main, **others})


def _parameters(program: Program, columns: Columns) -> dict[str, str]:
    """Return the columns for the parameters of a function that have the same name."""
    try:
        tree = ast.parse(program.file.read_bytes() if program.file is not None else b"")
    except (OSError, SyntaxError, ValueError):
        return {}
    known, name = {as_name(column): column for column in columns.others}, program.function.rpartition(":")[2]
    for one in tree.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name:
            given = [arg.arg for arg in (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)]
            return {arg: known[arg] for arg in given if arg in known}
    return {}
