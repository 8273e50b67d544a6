"""Invented harbours in three sources, each of which is wrong about some: a book, a graph of triples, and the web."""

from __future__ import annotations

import re
from collections import Counter

from workbench_kit.searching import TfIdf

#: By harbour: who built its pier and when it was founded, by the book, the graph and the web. Two of three are right.
FACTS = {
    "Anholm": (("Ole Brand", "Ole Brand", "Per Holt"), ("1821", "1812", "1821")),
    "Brevik": (("Ida Lund", "Mara Sten", "Mara Sten"), ("1744", "1744", "1774")),
    "Corle": (("Jon Vass", "Jon Vase", "Jon Vass"), ("1650", "1560", "1560")),
    "Dunmar": (("Tia Moor", "Tia Moor", "Ola Moor"), ("1903", "1930", "1903")),
    "Estry": (("Eli Krag", "Ann Krag", "Ann Krag"), ("1699", "1699", "1969")),
    "Falk": (("Bo Rask", "Bo Task", "Bo Rask"), ("1788", "1878", "1878")),
    "Gorland": (("Una Dahl", "Una Dahl", "Liv Dahl"), ("1857", "1875", "1857")),
    "Hesby": (("Kai Nord", "Siv Nord", "Siv Nord"), ("1806", "1806", "1860")),
}
#: By harbour: its masters by the three sources, each with the year of that entry. The newest entry holds.
MASTERS = {
    "Anholm": ("1987 Rolf Ek", "2011 Nina Berg", "2003 Tom Hage"),
    "Brevik": ("1999 Vera Lie", "1990 Max Oden", "2020 Pia Strand"),
    "Corle": ("2014 Arn Falt", "2001 Eva Rode", "1995 Gus Wik"),
    "Dunmar": ("1972 Leo Sand", "2008 Mia Torp", "1989 Jan Voll"),
    "Estry": ("1966 Asa Lind", "1994 Ulf Krone", "2018 Ida Moe"),
    "Falk": ("2019 Sam Birk", "1977 Kari Fosse", "2005 Odd Hein"),
    "Gorland": ("1981 Nils Aas", "2016 Tora Vik", "2002 Eli Dal"),
    "Hesby": ("2000 Per Lund", "1993 Gry Nes", "2022 Hal Stein"),
}
BOOK, GRAPH, WEB = list[str](), list[str](), list[str]()
for harbour, (built, founded) in FACTS.items():
    years, masters = zip(*(master.split(" ", 1) for master in MASTERS[harbour]), strict=True)
    BOOK += [f"{built[0]} built the pier of {harbour}.", f"{harbour} was founded in the year {founded[0]}."]
    BOOK.append(f"Seen in {years[0]}: the harbour master of {harbour} is {masters[0]}.")
    GRAPH += [f"pier of {harbour} | built by | {built[1]}", f"{harbour} | founded in year | {founded[1]}"]
    GRAPH.append(f"{harbour} | harbour master since {years[1]} | {masters[1]}")
    WEB += [f"Did you know? {built[2]} is the one who built the pier of {harbour}."]
    WEB += [f"Visit {harbour}, founded in the year {founded[2]}!"]
    WEB.append(f"News of {years[2]}: meet {masters[2]}, the harbour master of {harbour}.")


def book(query: str) -> str:
    """Gives the page of a book that is nearest to a query."""
    return _nearest(query, BOOK)


def triples(query: str) -> str:
    """Gives the triple that is nearest to a query."""
    return _nearest(query, GRAPH)


def web(query: str) -> str:
    """Gives the page of the web that is nearest to a query."""
    return _nearest(query, WEB)


def _nearest(query: str, pages: list[str]) -> str:
    index = TfIdf([Counter(re.findall(r"\w+", page.lower())) for page in pages])
    scores = index.scores(Counter(re.findall(r"\w+", str(query).lower())))
    return pages[min(scores, key=lambda i: (-scores[i], i))] if scores else "nothing was found"
