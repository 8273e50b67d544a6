"""Which of an agent's tools a model sees: all of them whole, the nearest to its task, or names that it registers.

Sources: EcoAct (arXiv 2411.01643): names only, and one more tool, `register`, whose answer is the full description; one
tool a registration, since several at once did worse there. Toolshed (arXiv 2410.14594): tools are found by their
descriptions and by questions that they answer; the task is rewritten into several queries. Departure: words, not
embeddings, since no embedding model comes with workbench (recall of both: docs/benchmarks.md).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from workbench.errors import SpecError, suggest
from workbench.kit.tfidf import TfIdf
from workbench.kit.tools import Tool, describe_tool

REGISTER = "register"
#: Added to a system prompt that shows some tools by name alone.
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
    """Finds tools by words of a text: TF-IDF over names, descriptions, arguments, and questions that they answer."""

    def __init__(self, tools: Sequence[Tool], asked: Mapping[str, Sequence[str]]):
        self.names = [tool.name for tool in tools]
        self.index = TfIdf([_bag(" ".join([_text(tool), *asked.get(tool.name, ())])) for tool in tools])

    def nearest(self, texts: Sequence[str], count: int) -> list[str]:
        """Names of the `count` nearest tools, the best first; of several texts each tool counts by its best rank."""
        ranks = [self._ranks(text) for text in texts]
        order = sorted(range(len(self.names)), key=lambda i: (min(r[i] for r in ranks), sum(r[i] for r in ranks), i))
        return [self.names[i] for i in order[:count]]

    def _ranks(self, text: str) -> list[int]:
        scores = self.index.scores(_bag(text))
        order = sorted(range(len(self.names)), key=lambda i: (-scores.get(i, 0.0), i))
        return [rank for _, rank in sorted((i, rank) for rank, i in enumerate(order))]


def _text(tool: Tool) -> str:
    arguments = tool.schema.get("properties", {})
    told = (str(schema.get("description", "")) for schema in arguments.values() if isinstance(schema, Mapping))
    return " ".join([tool.name, tool.description, *arguments, *told])


def _bag(text: str) -> Counter[str]:
    """Words, with camelCase and snake_case taken apart, and their beginnings, so that `search` meets `searching`."""
    words = re.findall(r"[^\W_]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).lower())
    return Counter(words + [f"{word[:4]}*" for word in words if len(word) >= 4])


class Shown:
    """The tools of one run of an agent: `whole` can be called, `named` can be registered first."""

    def __init__(self, tools: Mapping[str, Tool], whole: Sequence[str], lazy: bool):
        self.whole = {name: tools[name] for name in whole}
        self.named = {name: tool for name, tool in tools.items() if name not in self.whole} if lazy else {}

    def register(self, name: Any) -> str:
        """Make a tool callable; what the model is told of it. Asking twice is free of harm."""
        if not isinstance(name, str):
            return "error: name one tool"
        if name in self.whole:
            return f"{name} is registered already: {describe_tool(self.whole[name])}"
        if name not in self.named:
            return f"error: there is no tool {name!r}. {suggest(str(name), list(self.named))}"
        self.whole[name] = self.named.pop(name)
        return TOLD + describe_tool(self.whole[name])

    def refusal(self, name: Any) -> str | None:
        """Why a tool cannot be called now; None if it can."""
        if isinstance(name, str) and name in self.whole:
            return None
        if isinstance(name, str) and name in self.named:
            return f"error: {name} is not registered yet: register it first"
        return f"error: there is no tool {name!r}; tools: {', '.join([*self.whole, *self.named])}"

    @cached_property
    def registering(self) -> Tool:
        """The tool that registers, for servers that take tool definitions natively."""
        return replace(REGISTRATION, description=f"Make one of these tools callable: {', '.join(self.named)}")


def check_wrapper(source: str, path: tuple[str, ...]) -> None:
    """Raises SpecError for what does not define wrap(result, arguments)."""
    try:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"the wrapper is no Python: {getattr(error, 'msg', error)}", path=path) from None
    wrap = next((f for f in functions if f.name == "wrap"), None)
    if wrap is None or [a.arg for a in wrap.args.args] != ["result", "arguments"]:
        raise SpecError(
            "the wrapper does not define wrap(result, arguments)",
            path=path,
            hint="Write e.g. `def wrap(result, arguments): return result[:200]`.",
        )


def count_prompt_characters(tools: Sequence[Tool], fixed: int, used: int = 1) -> tuple[int, int]:
    """(all shown whole, registered lazily): characters of system prompts and registrations that a run sends.

    fixed: of a system prompt besides its tools. used: tools of mean size that are called, once each. Each registration
    is a step more, which sends all again; what it told stays in the context from then on. The conversation itself is
    left out.
    """
    texts = [describe_tool(tool) for tool in tools]
    names = len(LAZY.format(names=", ".join(tool.name for tool in tools)))
    told = len(TOLD) + sum(map(len, texts)) / max(1, len(texts))
    steps = used + 1
    registered = sum(told * (steps + used - (2 * k + 1)) for k in range(used))
    return steps * (fixed + len("\n".join(texts))), round((steps + used) * (fixed + names) + registered)


def find_crossover(tools: Sequence[Tool], fixed: int, used: int = 1) -> int:
    """From how many tools of this mean size on lazy registration sends less."""
    if not tools:
        return 0
    count = 1
    while count < 10_000:
        some = [tools[i % len(tools)] for i in range(count)]
        full, lazy = count_prompt_characters(some, fixed, used)
        if lazy < full:
            return count
        count += 1
    return count
