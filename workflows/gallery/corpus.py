"""A corpus of invented places, and a search in it by words."""

from __future__ import annotations

import re
from collections import Counter

from workbench.kit.searching import TfIdf

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
_INDEX = TfIdf([Counter(re.findall(r"\w+", page.lower())) for page in PAGES])


def search(query: str) -> str:
    """Gives the two pages that are nearest to a query."""
    scores = _INDEX.scores(Counter(re.findall(r"\w+", str(query).lower())))
    best = sorted(scores, key=lambda i: (-scores[i], i))[:2]
    return " ".join(PAGES[i] for i in best) or "nothing was found"
