"""A scripted pool whose model embeds too: a vector is what a text says of some meanings, in whatever words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.helpers.scripted import Say, Script


class Meanings(Script):
    """meanings: words that mean the same, by a name. A vector counts them for each name. asked: the requests' texts."""

    def __init__(self, meanings: Mapping[str, str], say: Say = lambda request: "yes"):
        super().__init__(say)
        self.meanings, self.asked = {name: words.split() for name, words in meanings.items()}, list[list[str]]()

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        self.asked.append([*texts])
        return [
            [float(sum(text.lower().count(w) for w in words)) for words in self.meanings.values()] for text in texts
        ], 1
