"""A corpus of invented places, and a search in it by words."""

from __future__ import annotations

import re
from collections import Counter

from workbench_kit.searching import TfIdf

PAGES = [
    "Lorvik is a harbour town in the north of Ostra. It has 4,000 people and one lighthouse.",
    "The lighthouse of Lorvik was built in 1871 by Mara Ilven.",
    "Mara Ilven was an engineer, born in Tessmark in 1832.",
    "Tessmark is the capital of Ostra. It lies on the river Quill.",
    "The river Quill rises in the Hallen hills and flows into the Grey Bay.",
    "Ostra is a small country with two towns, Lorvik and Tessmark. Its flag is green and white.",
    "The Hallen hills are known for their sheep and a cheese called dorn.",
    "Dorn is a hard cheese that ripens for two years.",
    "The Grey Bay freezes every winter, and ships go to Port Amsel then.",
    "Port Amsel is the only harbour of Ostra that never freezes. It was founded in 1905 by Jon Vey.",
    "Jon Vey was a whaler. He wrote a book about ice.",
    "The university of Tessmark teaches mining and law. Its first rector was Ada Korr.",
]


def search(query: str) -> str:
    """Gives the two pages that are nearest to a query."""
    return " ".join(_nearest(query, PAGES)) or "nothing was found"


def _nearest(query: str, pages: list[str]) -> list[str]:
    index = TfIdf([Counter(re.findall(r"\w+", page.lower())) for page in pages])
    scores = index.scores(Counter(re.findall(r"\w+", str(query).lower())))
    return [pages[i] for i in sorted(scores, key=lambda i: (-scores[i], i))[:2]]
