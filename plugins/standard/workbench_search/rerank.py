"""A reranker: a node that orders the results of a search.

Sources: lists ordered at once as in RankGPT (Sun et al., arXiv 2304.09542), where documents omitted by the model follow
in their original order; or each document scored by itself, as in monoT5 (Nogueira et al., arXiv 2003.06713). Departure:
there is no sliding window, so all candidates must fit into one prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.concurrency import gather_all
from workbench.errors import NodeError, SpecError
from workbench.runtime import Context
from workbench.spec import Code
from workbench.workflow import NodeKind
from workbench_kit.acting import child_node
from workbench_kit.answers import read_number

LIST, ORDER = "documents", "order"
ONE, SCORE = "document", "score"


class Reranker:
    """The node under `rerank`. Raises SpecError if it does not read and write the required fields."""

    def __init__(self, tree: Mapping[str, Any], base: Path, code: Code):
        self.node: NodeKind = child_node("rerank", tree, base, ("rerank",), code)
        self.whole = LIST in self.node.inputs and ORDER in self.node.outputs
        if not self.whole and not (ONE in self.node.inputs and SCORE in self.node.outputs):
            raise SpecError(
                f"a rerank node reads {LIST} and writes {ORDER}, or reads {ONE} and writes {SCORE}",
                hint='Write e.g. rerank: {predict: "query, documents -> order: list[int]"}.',
                path=("rerank",),
            )

    @property
    def inputs(self) -> list[str]:
        """Return the fields that it reads besides the search results."""
        return [name for name in self.node.inputs if name != (LIST if self.whole else ONE)]

    def calls_of(self, documents: int) -> int:
        return self.node.max_calls * (1 if self.whole else documents)

    async def order(self, shown: Sequence[str], inputs: Mapping[str, Any], ctx: Context) -> list[int]:
        """Return numbers of the documents, each once, best first. shown: the documents in their current order."""
        given = {name: inputs[name] for name in self.inputs}
        if self.whole:
            numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(shown, 1))
            answer = await ctx.run_child(self.node, "rerank", {**given, LIST: numbered})
            named = [number - 1 for number in _numbers(answer[ORDER]) if 1 <= number <= len(shown)]
            return list(dict.fromkeys([*named, *range(len(shown))]))
        runs = [ctx.run_child(self.node, "rerank", {**given, ONE: text}, n) for n, text in enumerate(shown)]
        scores = [_score(answer[SCORE]) for answer in await gather_all(runs)]
        return sorted(range(len(shown)), key=lambda number: (-scores[number], number))


def _numbers(order: Any) -> list[int]:
    parts = order if isinstance(order, list | tuple) else [order]
    return [int(number) for part in parts for number in re.findall(r"\d{1,4}", str(part))]


def _score(value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    if (read := read_number(str(value), SCORE)) is None:
        raise NodeError("unparsed", f"rerank: the score of a document is {value!r:.80}, and no number")
    return read[0].value
