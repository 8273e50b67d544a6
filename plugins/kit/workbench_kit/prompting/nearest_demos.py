"""The nearest demos for an input, by words: TF-IDF cosine, computed once for a set of demos."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from workbench_kit.searching import TfIdf


class Nearest:
    """An index over demos by the text of their input fields."""

    def __init__(self, demos: Sequence[Mapping[str, Any]], inputs: Sequence[str]):
        self.demos, self.inputs = demos, inputs

    @cached_property
    def index(self) -> TfIdf:
        return TfIdf([self._bag(demo) for demo in self.demos])

    def shown(self, values: Mapping[str, Any], most: int) -> list[int]:
        """Return the indices of the demos shown for an input: the `most` nearest; 0: all. The input's own row is never
        shown."""

        def differs(number: int) -> bool:
            return not self.inputs or any(self.demos[number].get(n) != values.get(n) for n in self.inputs)

        if not most:
            return [*filter(differs, range(len(self.demos)))]
        near = filter(differs, self.order(values))
        return [*itertools.islice(near, most)][::-1]  # the nearest last: models pay most attention to the end

    def order(self, values: Mapping[str, Any]) -> Iterator[int]:
        """Yield the indices of all demos, the nearest first."""
        scores = self.index.scores(self._bag(values))
        yield from sorted(scores, key=lambda i: (-scores[i], i))
        yield from (i for i in range(len(self.demos)) if i not in scores)

    def _bag(self, values: Mapping[str, Any]) -> Counter[str]:
        text = " ".join(str(values.get(name, "")) for name in self.inputs).lower()
        words = re.findall(r"\w+", text)
        return Counter(words + [f"{a} {b}" for a, b in itertools.pairwise(words)])
