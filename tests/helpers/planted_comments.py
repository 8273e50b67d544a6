"""Comments on traces whose hidden behaviours are known, and a model of rules that reads them. No model is involved.

A behaviour is a topic with words of its own. A trace shows some topics, each done well or badly, at one step each;
comments speak of most of these in words of their own, and of other things.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.scripted import Script
from workbench.lm import Request
from workbench_feedback.comments import Comment, Comments
from workbench_feedback.grounding import Aspect
from workbench_kit.logs import Log, LogStep

#: The words by which topics are known; the first is their name.
TOPICS = {
    "stock": "stock inventory warehouse shelf supply",
    "manners": "manners polite greeting thanks courtesy",
    "price": "price discount invoice total currency",
    "sources": "sources citation reference footnote quotation",
    "retries": "retries timeout repeated loop attempt",
    "privacy": "privacy password secret personal redact",
}
FILLER = "before after while again task answer user reply quickly because request step long short then also".split()
WORD = {word: topic for topic, words in TOPICS.items() for word in words.split()}


@dataclass(frozen=True)
class World:
    """Comments, and by the place of each the topic that it is about; None for talk about nothing in the trace."""

    comments: Comments
    topics: dict[str, str | None]

    def truth(self, aspects: Sequence[Aspect]) -> list[str]:
        return [str(self.topics[aspect.place]) for aspect in aspects]


def sentence(topic: str, rng: random.Random) -> str:
    """Two of the topic's words among three that belong to no topic."""
    words = rng.sample(TOPICS[topic].split(), 2) + rng.sample(FILLER, 3)
    rng.shuffle(words)
    return " ".join(words)


def plant(k: int = 4, traces: int = 24, noise: float = 0.2, seed: int = 0, shuffled: bool = False) -> World:
    """A world of k topics. noise: share of comments on nothing that the trace shows. shuffled: each comment is on the
    trace after that which it was written for."""
    rng, names = random.Random(f"{seed}:{k}:{traces}"), list(TOPICS)[:k]
    logs, comments, topics = list[Log](), list[Comment](), dict[str, str | None]()
    for trace in range(traces):
        shown = {name: rng.choice((1, -1)) for name in rng.sample(names, rng.randint(2, max(2, k - 1)))}
        steps = [LogStep("agent", f"trace {trace} begins")]
        for name, sign in shown.items():
            steps.append(LogStep("agent", f"{'well' if sign > 0 else 'badly'} done {trace}: {sentence(name, rng)}"))
        logs.append(Log(f"planted-{trace}", tuple(steps)))
        for name, sign in shown.items():
            place = f"comments.jsonl:{len(comments) + 1}"
            said = "I like the" if sign > 0 else "I hate the"
            if rng.random() < noise:
                topics[place], text = None, "nice weather today"
            else:
                topics[place], text = name, f"{said} {sentence(name, rng)}"
            comments.append(Comment(place, text, (trace + shuffled) % traces))
    return World(Comments(tuple(comments), tuple(logs)), topics)


def write_world(world: World, folder: Path, name: str = "comments.jsonl") -> Path:
    """The world as a file of comments with their traces in it."""
    lines = []
    for comment in world.comments.comments:
        steps = [{"agent": s.agent, "content": s.content} for s in world.comments.traces[comment.trace].steps]
        lines.append(json.dumps({"trace": steps, "comment": comment.text}))
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / name


# The model of rules


def topics_in(text: str) -> list[str]:
    """Topics by the number of their words in a text, most first."""
    counts = Counter(WORD[word] for word in re.findall(r"\w+", text.casefold()) if word in WORD)
    return [topic for topic, _ in counts.most_common()]


def read_shown(prompt: str) -> list[tuple[int, str]]:
    """(number, text) of each step in a prompt."""
    return [(int(n), text) for n, text in re.findall(r"^Step (\d+), \w+: (.*)$", prompt, re.MULTILINE)]


def say_rules(request: Request) -> str:
    """The answer to each prompt of `induce`, by the words of topics alone."""
    text = str(request.messages[-1]["content"])
    for mark, say in (
        ("Break the comment", _aspects),
        ("Sort the observations", _groups),
        ("Make one metric", _metric),
        ("Rate the log", _ratings),
        ("For each observation", _matches),
    ):
        if mark in text:
            return f"Here it is:\n```json\n{json.dumps(say(text))}\n```"
    raise AssertionError(f"an unknown prompt: {text[-300:]}")


def _aspects(text: str) -> object:
    """An aspect at the step of the comment's topic; without such a step one that quotes words of nobody."""
    said = re.findall(r"^Comment: (.*)$", text, re.MULTILINE)[0]
    about, sign = topics_in(said), "+" if "like" in said else "-"
    for number, step in read_shown(text):
        if about and topics_in(step)[:1] == about[:1]:
            return {"aspects": [_aspect(number, step, said, sign)]}
    return {"aspects": [_aspect(0, "what no step of it says", said, sign)]}


def _aspect(number: int, quote: str, said: str, sign: str) -> dict[str, object]:
    return {
        "step": number,
        "quote": quote,
        "behaviour": said.removeprefix("I like the ").removeprefix("I hate the "),
        "feedback": "so it is",
        "sign": sign,
    }


def _groups(text: str) -> object:
    """Groups by topic; fewer than there are topics join some, more split some."""
    n = int(re.findall(r"into exactly (\d+) groups", text)[0])
    listed = [
        (int(a), (topics_in(b) or ["none"])[0]) for a, b in re.findall(r"^(\d+)\. \(.\) (.*)$", text, re.MULTILINE)
    ]
    names = sorted({topic for _, topic in listed})
    groups: list[list[int]] = [[] for _ in range(n)]
    for number, topic in listed:
        place = names.index(topic)
        more = [g for g in range(n) if g % len(names) == place] if n > len(names) else [place % n]
        groups[more[number % len(more)]].append(number)
    return {"groups": [{"members": group} for group in groups]}


def _metric(text: str) -> object:
    listed = [(int(a), s, b) for a, s, b in re.findall(r"^(\d+)\. \((.)\) (.*)$", text, re.MULTILINE)]
    topics = sorted({topic for _, _, said in listed for topic in topics_in(said)[:1]})
    good, bad = ([n for n, s, _ in listed if s == sign] for sign in "+-")
    return {"name": " and ".join(topics), "definition": f"About {' '.join(topics)}.", "good": good, "bad": bad}


def _ratings(text: str) -> object:
    """By each metric the first step that shows one of its topics."""
    log, _, listed = text.partition("Metrics:")
    ratings = []
    for number, definition in re.findall(r"^(\d+)\. .*?: (About .*\.)$", listed, re.MULTILINE):
        wanted, found = topics_in(definition), {"metric": int(number), "rating": 0}
        for step, said in read_shown(log):
            if topics_in(said) and topics_in(said)[0] in wanted:
                rating = 1 if said.startswith("well") else -1
                found |= {"rating": rating, "step": step, "quote": said, "reason": f"it is on {topics_in(said)[0]}"}
                break
        ratings.append(found)
    return {"ratings": ratings}


def _matches(text: str) -> object:
    """The finding of one sign whose reason is on the observation's topic."""
    observed, _, found = text.partition("Findings:")
    findings = re.findall(r"^(\d+)\. \((.)\) .*\[it is on (\w+)\]$", found, re.MULTILINE)
    matches = []
    for number, sign, said in re.findall(r"^(\d+)\. \((.)\) (.*)$", observed, re.MULTILINE):
        fit = [int(n) for n, s, topic in findings if s == sign and topic == (topics_in(said) or [""])[0]]
        matches.append({"observation": int(number), "finding": fit[0] if fit else 0})
    return {"matches": matches}


def rules() -> Script:
    return Script(say_rules)
