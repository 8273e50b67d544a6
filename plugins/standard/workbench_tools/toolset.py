"""Select the tools of an agent that a model sees: all in full, the nearest to the task, or names to register.

Sources: EcoAct (arXiv 2411.01643): names only, and one more tool, `register`, which returns the full description; one
tool per registration, since several did worse there. Toolshed (arXiv 2410.14594): search for tools by their
descriptions and by questions that they answer; the task is rewritten into several queries. Departure: words instead of
embeddings, since workbench bundles no embedding model (recall of both: docs/benchmarks.md).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from workbench.errors import SpecError, suggest
from workbench_kit.acting import Tool, describe_tool
from workbench_kit.answers import known_name
from workbench_kit.searching import TfIdf, count_words_and_stems

REGISTER = "register"
#: Added to a system prompt that shows some tools by name only.
LAZY = """
More tools, by name. To be told what one does and to be able to call it, first answer with this line, one tool at a time:
call: {{"tool": "register", "arguments": {{"tool": NAME}}}}
Names: {names}"""  # noqa: E501
TOLD = "registered. "


def _never(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("the agent registers tools itself")


REGISTRATION = Tool(
    REGISTER, "", {"type": "object", "properties": {"tool": {"type": "string"}}, "required": ["tool"]}, _never
)


class ToolIndex:
    """Finds tools for a text by TF-IDF over names, descriptions, arguments, and questions that they answer."""

    def __init__(self, tools: Sequence[Tool], asked: Mapping[str, Sequence[str]]):
        self.names = [tool.name for tool in tools]
        texts = [" ".join([_text(tool), *asked.get(tool.name, ())]) for tool in tools]
        self.index = TfIdf([count_words_and_stems(text) for text in texts])

    def nearest(self, texts: Sequence[str], count: int) -> list[str]:
        """Return the names of the `count` nearest tools, best first. With several texts, a tool's best rank counts."""
        ranks = [self._ranks(text) for text in texts]
        order = sorted(range(len(self.names)), key=lambda i: (min(r[i] for r in ranks), sum(r[i] for r in ranks), i))
        return [self.names[i] for i in order[:count]]

    def _ranks(self, text: str) -> list[int]:
        scores = self.index.scores(count_words_and_stems(text))
        order = sorted(range(len(self.names)), key=lambda i: (-scores.get(i, 0.0), i))
        return [rank for _, rank in sorted((i, rank) for rank, i in enumerate(order))]


def _text(tool: Tool) -> str:
    arguments = tool.schema.get("properties", {})
    told = (str(schema.get("description", "")) for schema in arguments.values() if isinstance(schema, Mapping))
    return " ".join([tool.name, tool.description, *arguments, *told])


class Shown:
    """The tools of one run of an agent: `whole` can be called, `named` can be registered first."""

    def __init__(self, tools: Mapping[str, Tool], whole: Sequence[str], lazy: bool):
        self.whole = {name: tools[name] for name in whole}
        self.named = {name: tool for name, tool in tools.items() if name not in self.whole} if lazy else {}

    def only(self, keep: Callable[[str], bool]) -> Shown:
        """Return the tools for which `keep` is true."""
        some = Shown({}, (), lazy=False)
        some.whole = {name: tool for name, tool in self.whole.items() if keep(name)}
        some.named = {name: tool for name, tool in self.named.items() if keep(name)}
        return some

    def register(self, name: Any) -> str:
        """Make a tool callable and return its description for the model. Registering twice is harmless."""
        if not isinstance(name, str):
            return "error: name one tool"
        name = known_name(name, [*self.whole, *self.named]) or name
        if name in self.whole:
            return f"{name} is registered already: {describe_tool(self.whole[name])}"
        if name not in self.named:
            return f"error: there is no tool {name!r}. {suggest(str(name), list(self.named))}"
        self.whole[name] = self.named.pop(name)
        return TOLD + describe_tool(self.whole[name])

    def refusal(self, name: Any) -> str | None:
        """Return the reason why a tool cannot be called now, or None."""
        if isinstance(name, str) and name in self.whole:
            return None
        if isinstance(name, str) and name in self.named:
            return f"error: {name} is not registered yet: register it first"
        return f"error: there is no tool {name!r}; tools: {', '.join([*self.whole, *self.named])}"

    @cached_property
    def registering(self) -> Tool:
        """Return the tool `register`, for servers with native tool definitions."""
        return replace(REGISTRATION, description=f"Make one of these tools callable: {', '.join(self.named)}")


def check_wrapper(source: str, path: tuple[str, ...]) -> None:
    """Raise SpecError for a source that does not define wrap(result, arguments)."""
    try:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"the wrapper is not valid Python: {getattr(error, 'msg', error)}", path=path) from None
    wrap = next((f for f in functions if f.name == "wrap"), None)
    if wrap is None or [a.arg for a in wrap.args.args] != ["result", "arguments"]:
        raise SpecError(
            "the wrapper does not define wrap(result, arguments)",
            path=path,
            hint="Write e.g. `def wrap(result, arguments): return result[:200]`.",
        )


def count_prompt_characters(tools: Sequence[Tool], fixed: int) -> tuple[int, int]:
    """Return (with all tools shown, with lazy registration): characters of prompts in a run that calls one tool of mean
    size.

    fixed: characters of a system prompt without its tools. Registration adds a step, which sends the prompt again; its
    description stays in the context. The conversation itself is not counted.
    """
    texts = [describe_tool(tool) for tool in tools]
    names = len(LAZY.format(names=", ".join(tool.name for tool in tools)))
    told = len(TOLD) + sum(map(len, texts)) / max(1, len(texts))
    return 2 * (fixed + len("\n".join(texts))), round(3 * (fixed + names) + 2 * told)


def find_crossover(tools: Sequence[Tool], fixed: int) -> int:
    """Return the minimum number of tools of this mean size for which lazy registration sends less if one is used."""
    if not tools:
        return 0
    for count in range(1, 10_000):
        full, lazy = count_prompt_characters([tools[i % len(tools)] for i in range(count)], fixed)
        if lazy < full:
            return count
    return 10_000


def tell_crossover(tools: Sequence[Tool], fixed: int) -> str:
    """Describe the saving by lazy registration with these tools, or the number of tools from which on it saves."""
    full, lazy = count_prompt_characters(tools, fixed)
    begun = f"with {len(tools)} tools, register: lazy sends about"
    if lazy < full:
        return f"{begun} {1 - lazy / full:.0%} less than showing all."
    least = find_crossover(tools, fixed)
    return f"{begun} {lazy / full - 1:.0%} more than showing all; it saves from about {least} such tools."
