"""Searches the source of an agent for how it reads its input and which variables it needs.

A hint only orders the attempts: a wrong one costs a start of the agent, and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench_external.exchange import is_inherited
from workbench_external.gateway import ALWAYS, VARIABLES
from workbench_external.sources.folder import find_files, read_source

#: Maximum files and characters to search; suffixes of code files.
_MAX_FILES, _MAX_TEXT = 300, 2_000_000
_CODE = {
    *(".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".sh", ".bash", ".rb", ".go", ".pl", ".php", ".rs", ".java"),
    "",
}
_STDIN = re.compile(
    r"\bstdin\b|STDIN|\binput\(|readFileSync\(\s*0\b|/dev/stdin|fileinput|\bread -|\$\(cat\)|createInterface|readline"
    r"|Console\.Read|System\.in|\bcat -?$",
    re.MULTILINE,
)
_QUESTION = re.compile(r"\binput\(|\.question\(")
_ARGUMENTS = re.compile(
    r"\bargv\b|ARGV|argparse|\bclick\b|\btyper\b|\bfire\b|parseArgs|commander|yargs|\$\{?[1@*]\b|os\.Args|docopt"
)
_JSON = re.compile(r"json\.loads?\(|JSON\.parse|validate_json|\.json\(\)|\bjq\b|from_json|orjson|JSON\.load")
_OPTION = re.compile(r"""["'](--[a-zA-Z][\w-]*)\b|\.option\(\s*["'](\w+)["']|\b(\w+)\s*:\s*\{\s*type:\s*["']string""")
_KEYS = re.compile(
    r"""\[\s*["'](\w+)["']\s*\]|\.get\(\s*["'](\w+)["']|\bJSON\.parse\([^\n;]*\)\.(\w+)"""
    r"""|\b(?:data|row|input|payload|body|request|req|event|args|item|example|record)\.(\w+)"""
    r"""|^\s+(\w+)\s*:\s*str\b""",
    re.MULTILINE,
)
_TAKEN_APART = re.compile(r"\{([\w\s,:]+)\}\s*=\s*(?:await\s+)?JSON\.parse")
_FILE = re.compile(r"""["'`]([\w./-]+\.(?:txt|json|md))["'`]""")
_QUIT = re.compile(r"""["'](/?(?:quit|exit|q|bye|stop))["']""")
_VARIABLE = re.compile(
    r"""environ(?:\.get\(|\[)\s*["'](\w+)["']|getenv\(\s*["'](\w+)["']|process\.env\.(\w+)"""
    r"""|process\.env\[\s*["'](\w+)["']|ENV(?:\.fetch\(|\[)\s*["'](\w+)["']"""
)
#: In other languages this is a template, or a variable of the program.
_OF_SHELL, _SHELLS = re.compile(r"\$\{?([A-Z][A-Z0-9_]{3,})\b"), {".sh", ".bash", ""}
_ADDRESS = re.compile(r"""(?:base_?url|api_?base|endpoint|host)\w*["']?\s*[:=]\s*f?["'`](https?://[^"'`\s]+)""", re.I)
#: Endings of variables that name an address; words in those for a model's server.
_PLACE = re.compile(r"_?(?:BASE_URL|API_BASE|API_URL|ENDPOINT|BASE|URL|HOST)$")
_OF_MODELS = re.compile(r"LLM|MODEL|OPENAI|ANTHROPIC|CLAUDE|GPT|CHAT|^AI_|_AI_|INFERENCE|GATEWAY|ROUTER|VLLM|OLLAMA")
_KEY = re.compile(r"KEY|TOKEN|SECRET")
#: Keys with which a program would call a provider directly, and at a cost.
_OF_PROVIDERS = re.compile(
    r"OPENAI|ANTHROPIC|CLAUDE|GEMINI|GOOGLE|VERTEX|MISTRAL|COHERE|GROQ|TOGETHER|DEEPSEEK|OPENROUTER|AZURE|XAI|FIREWORKS"
    r"|CEREBRAS|PERPLEXITY|REPLICATE|HUGGING|^HF_|BEDROCK|AWS|NVIDIA|WATSON"
)


@dataclass(frozen=True)
class Hints:
    """The hints of a source.

    options: of its command line. keys: that it may read from its input. addresses: of servers that it names itself,
    with `file:line`. files: that it reads by name. quits: words that end a conversation.
    questions: the number that it asks on its terminal.
    """

    stdin: bool = False
    arguments: bool = False
    json: bool = False
    options: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    quits: tuple[str, ...] = ()
    questions: int = 0
    text: str = ""

    def names(self, column: str) -> bool:
        """Return True if the source has the name of a column as a word."""
        return re.search(rf"\b{re.escape(column)}\b", self.text) is not None


def read_hints(program: Path | None, folder: Path) -> Hints:
    """Read the hints from a program's source, or else from a folder's."""
    read = [*_read(program, folder)]
    # The program itself shows how it gets its input; any of its files may show the variables that it needs.
    own = read[0][1] if program is not None and read else "\n".join(text for _, text in read)
    whole = "\n".join(text for _, text in read)
    variables = [name for _, text in read for found in _VARIABLE.findall(text) for name in found if name]
    variables += [name for path, text in read if path.suffix in _SHELLS for name in _OF_SHELL.findall(text)]
    keys = [name for found in _KEYS.findall(own) for name in found if name]
    keys += [name.strip() for found in _TAKEN_APART.findall(own) for name in re.split(r"[,:]", found) if name.strip()]
    addresses = [
        f"{path.name}:{text.count(chr(10), 0, found.start()) + 1} ({found[1]})"
        for path, text in read
        for found in _ADDRESS.finditer(text)
    ]
    return Hints(
        stdin=_STDIN.search(own) is not None,
        arguments=_ARGUMENTS.search(own) is not None,
        json=_JSON.search(own) is not None,
        options=tuple(dict.fromkeys(f"--{name.lstrip('-')}" for one in _OPTION.findall(own) for name in one if name)),
        keys=tuple(dict.fromkeys(keys)),
        variables=tuple(dict.fromkeys(variables)),
        addresses=tuple(addresses),
        files=tuple(dict.fromkeys(one for one in _FILE.findall(own) if not one.startswith(("/", "..")))),
        quits=tuple(dict.fromkeys(_QUIT.findall(own))),
        questions=len(_QUESTION.findall(own)),
        text=whole,
    )


def _read(program: Path | None, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the program, if it is readable, and then the other files of its folder."""
    if program is not None and (text := read_source(program)) is not None:
        yield program, text[:_MAX_TEXT]
    size = 0
    for number, path in enumerate(find_files(folder)):
        if number >= _MAX_FILES or size > _MAX_TEXT:
            return
        if path != program and path.suffix in _CODE and (text := read_source(path)) is not None:
            size += len(text)
            yield path, text


def choose_environment(hints: Hints) -> dict[str, str]:
    """Return the setting `env`: variables for a model's server point to the gateway, and others are passed on if set.
    Keys of providers are left out: with one the agent could bypass the gateway, at a cost."""
    always, optional = _names_of(ALWAYS), _names_of(VARIABLES)
    led = [name for name in hints.variables if _PLACE.search(name) and name not in optional]
    led = [name for name in led if _OF_MODELS.search(name)] or led
    found = dict[str, str]()
    for place in led:
        found[place] = "$ANTHROPIC_BASE_URL" if re.search("ANTHROPIC|CLAUDE", place) else "$OPENAI_BASE_URL"
        prefix = _PLACE.sub("", place)
        own = [name for name in hints.variables if prefix and name.startswith(prefix) and _KEY.search(name)]
        found |= dict.fromkeys((name for name in own if name not in always), "$OPENAI_API_KEY")
    served = [name for name in optional - always if name in hints.variables or name in os.environ]
    yours = [name for name in hints.variables if name in os.environ and not is_inherited(name)]
    yours = [name for name in yours if not (_KEY.search(name) and _OF_PROVIDERS.search(name))]
    further = [name for name in (*sorted(served), *yours) if name not in found and name not in always]
    return {name: f"${name}" for name in further} | found


def _names_of(providers: Iterable[str]) -> set[str]:
    return {name for provider in providers for name in VARIABLES[provider]}
