"""What a scripted model says in the workflows of the gallery with agents or worlds behind HTTP (`gallery_scripts`)."""

from __future__ import annotations

import re

from tests.helpers.gallery_loops import shown
from tests.helpers.gallery_speech import Case


def turn(state: str, content: str, *to: str) -> str:
    return f"state: {state}\ncontent: {content}\nto: [{', '.join(to)}]"


GOODS = r"(\d+) tins? of (\w+)"


def basket(question: str) -> list[tuple[str, str]]:
    each = re.findall(r"one tin of each, (\w+), (\w+) and (\w+)", question)
    return [("1", good) for good in each[0]] if each else re.findall(GOODS, question)


def grocer(found: re.Match[str]) -> str:
    """Has the carrier asked while it looks up its own prices, waits for it, and passes the word to who can add."""
    question, talk, waiting = (shown(found, name) for name in ("question", "talk", "waiting"))
    city = re.findall(r"Rome|Oslo|Kyiv", question)
    if city and "Postage" not in talk:
        return turn("async", f"Postage to {city[0]}?", "carrier", "nobody")
    for _, good in basket(question):
        if f"{good} costs" not in talk:
            return turn("sync", f"What does {good} cost?", "grocer")
    return turn("discuss", "Please add it up.", "reckoner") if waiting == "[]" else turn("pause", "Let us wait.")


def reckoner(found: re.Match[str]) -> str:
    question, talk = (shown(found, name) for name in ("question", "talk"))
    if "that is" in talk:
        return turn("conclude", "We are done.")
    if "times" in question:
        return turn(
            "sync",
            " ".join(re.findall(r"\d+|times|plus", question)).replace("times", "*").replace("plus", "+"),
            "reckoner",
        )
    prices = dict(re.findall(r"(\w+) costs (\d+)", talk))
    terms = [f"{count} * {prices.get(good, 0)}" for count, good in basket(question)]
    return turn("sync", " + ".join([*terms, *re.findall(r"postage to \w+ is (\d+)", talk)]) or "0", "reckoner")


def craft(found: re.Match[str]) -> str:
    """The next thing on the way to the goal, by the recipes and by what it has: as far as its history shows them."""
    told = found.string
    recipes = {
        thing: (int(count), {part: int(n) for n, part in re.findall(r"(\d+) (\w+)", of)})
        for count, thing, of in re.findall(r"craft (\d+) (\w+) using ([^\n]*)\n", told.partition("Goal")[0])
    }
    goals, has = re.findall(r"Goal: craft (\w+)", told), dict[str, int]()
    for done, count, thing in re.findall(r"(Got|Crafted) (\d+) (\w+)", told):
        has[thing] = has.get(thing, 0) + int(count)
        for part, needed in recipes[thing][1].items() if done == "Crafted" and thing in recipes else ():
            has[part] -= needed

    def way(thing: str, count: int) -> str:
        if thing not in recipes:
            return f"get {count - has.get(thing, 0)} {thing}"
        made, of = recipes[thing]
        missing = next((part for part, needed in of.items() if has.get(part, 0) < needed), None)
        if missing is not None:
            return way(missing, of[missing])
        return f"craft {made} {thing} using {', '.join(f'{n} {part}' for part, n in of.items())}"

    return f"thought: {len(has)} things\naction: Action: {way(goals[0], 1) if goals else 'look'}"


STRANGERS = {
    "agentgym.yaml": Case(
        [("Craft the goal", "observation", craft)],
    ),
    "internet_of_agents.yaml": Case(
        [
            ("What must a team be able", "tin", "skills: [prices of goods, shipping, arithmetic]"),
            ("What must a team be able", "", "skills: [arithmetic]"),
            ("It is your turn", r"profile: .*\nKeeps a shop", grocer),
            ("It is your turn", r"profile: .*\nGood with numbers", reckoner),
            ("It is your turn", "", turn("discuss", "I do not know.", "grocer")),
            ("The team has concluded", r"that is (\d+)", r"\1"),
            ("The team has concluded", "", "0"),
        ],
    ),
}
