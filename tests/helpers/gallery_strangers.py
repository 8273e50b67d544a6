"""What a scripted model says in the workflows of the gallery with agents or worlds behind HTTP (`gallery_scripts`)."""

from __future__ import annotations

import re

from tests.helpers.gallery_loops import shown
from tests.helpers.gallery_speech import Case


def turn(state: str, content: str, *to: str) -> str:
    return f"state: {state}\ncontent: {content}\nto: [{', '.join(to)}]"


def grocer(found: re.Match[str]) -> str:
    """Has the carrier asked while it looks up its own price, waits for it, and passes the word to who can add."""
    question, talk, waiting = (shown(found, name) for name in ("question", "talk", "waiting"))
    good, city = re.findall(r"tins of (\w+) cost, sent to (\w+)", question)[0]
    if "Postage" not in talk:
        return turn("async", f"Postage to {city}?", "carrier", "nobody")
    if "costs" not in talk:
        return turn("sync", f"What does {good} cost?", "grocer")
    return turn("discuss", "Please add it up.", "reckoner") if waiting == "[]" else turn("pause", "Let us wait.")


def reckoner(found: re.Match[str]) -> str:
    question, talk = (shown(found, name) for name in ("question", "talk"))
    if "that is" in talk:
        return turn("conclude", "We are done.")
    if asked := re.findall(r"(\d+) times (\d+)", question):
        return turn("sync", " * ".join(asked[0]), "reckoner")
    count, price = re.findall(r"(\d+) tins", question), re.findall(r"costs (\d+)", talk)
    postage = re.findall(r"postage to \w+ is (\d+)", talk) or ["0"]
    return turn("sync", f"{count[0]} * {price[0]} + {postage[0]}" if price else "0", "reckoner")


STRANGERS = {
    "internet_of_agents.yaml": Case(
        [
            ({"question": "What do 3 tins of tea cost, sent to Rome?"}, {"answer": "21"}),
            ({"question": "How much is 6 times 7?"}, {"answer": "42"}),
        ],
        [
            ("What must a team be able", "tins", "skills: [prices of goods, shipping, arithmetic]"),
            ("What must a team be able", "times", "skills: [arithmetic]"),
            ("It is your turn", r"profile: .*\nKeeps a shop", grocer),
            ("It is your turn", r"profile: .*\nGood with numbers", reckoner),
            ("The team has concluded", r"that is (\d+)", r"\1"),
        ],
    ),
}
