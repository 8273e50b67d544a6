"""Leave-one-out influence of memories, computed from the log of the entries shown for each answer.

The attack: AgentPoison (Chen et al., arXiv 2407.12784) plants entries that a trigger in the input retrieves and that
lead to the attacker's answer; they serve other inputs well. One such entry is seen by few inputs, so entries that share
a word (and an answer) are also judged together, on the inputs with that word. The test is ours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from workbench.base.hashing import canonical
from workbench_memory.word_search import split_words

MIN_GROUP = 3  # entries that must share a word to be judged together


@dataclass(frozen=True)
class Answer:
    """A scored answer: its row, the words of its input, and the keys of the entries shown (none: no memory)."""

    row: str
    words: frozenset[str]
    keys: frozenset[str]
    score: float


@dataclass(frozen=True)
class Group:
    """Entries judged together. With a word, only inputs that have it count."""

    name: str
    keys: tuple[str, ...]
    word: str = ""


@dataclass(frozen=True)
class Suspect:
    """Entries to quarantine, with the evidence."""

    keys: tuple[str, ...]
    evidence: str


def group_entries(texts: Mapping[str, str], outputs: Mapping[str, Any]) -> list[Group]:
    """Groups of single entries, and of entries that share a word, or a word and an answer.

    Words in more than half of the entries are ignored.
    """
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, text in texts.items():
        answer = canonical(outputs[key])
        for word in split_words(text):
            shared[word, ""].append(key)
            shared[word, answer].append(key)
    found = [Group("it", (key,)) for key in texts]
    for (word, answer), keys in shared.items():
        if MIN_GROUP <= len(keys) <= max(MIN_GROUP, len(texts) / 2):
            name = f"the {len(keys)} entries with '{word}'{f' and {answer[:60]}' if answer else ''}, for inputs with it"
            found.append(Group(name, tuple(keys), word))
    return found


def find_suspect(answers: Sequence[Answer], sets: Sequence[Group], least: int, p: float) -> Suspect | None:
    """The group with the strongest evidence against it; None if that is not strong enough.

    Two conditions must hold. Inputs that saw the set are answered correctly less often than inputs that never saw it
    (Fisher's exact test, one-sided, each input counted once, Bonferroni over the sets seen by `least` inputs). And the
    same inputs scored better where they did not see it, so that entries are not blamed for hard inputs. Members of a
    set that did well on their own stay.
    """
    with_ = _seen(answers, sets)
    memory, every = _totals(a for a in answers if a.keys), _totals(answers)
    right = {row: mean >= 0.5 for row, mean in _means(memory).items()}
    judged = [i for i, rows in with_.items() if len(rows) >= least and len(rows) < len(right)]
    worst: tuple[float, int, int, str] | None = None
    for i in judged:
        rows = with_[i]
        means = _means(rows)
        paired = [means[r] - (every[r][0] - s) / (every[r][1] - n) for r, (s, n) in rows.items() if every[r][1] > n]
        if not paired or math.fsum(paired) >= 0:
            continue
        good, others = sum(m >= 0.5 for m in means.values()), len(right) - len(rows)
        good_others = sum(right.values()) - sum(right[r] for r in rows)
        chance = fisher_less(good, len(rows), good_others, others)
        if chance * len(judged) < p:
            evidence = f"{sets[i].name}: right {good}/{len(rows)} with, {good_others}/{others} without, p={chance:.2g}"
            found = (chance, len(sets[i].keys), i, evidence)
            worst = min(worst, found) if worst else found
    if worst is None:
        return None
    group = sets[worst[2]]
    alone = _seen(answers, [Group("", (key,), group.word) for key in group.keys])
    well = {group.keys[i] for i, rows in alone.items() if len(rows) > 1 and fmean(_means(rows).values()) >= 0.5}
    keys = tuple(key for key in group.keys if key not in well or len(group.keys) == 1)
    return Suspect(keys, worst[3]) if keys else None


Sums = dict[str, tuple[float, int]]  # row: sum and number of its scores


def _seen(answers: Sequence[Answer], sets: Sequence[Group]) -> dict[int, Sums]:
    """By the index of a group: the scores of the answers that saw any of its entries."""
    member: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for i, group in enumerate(sets):
        for key in group.keys:
            member[key].append((i, group.word))
    found: dict[int, Sums] = defaultdict(dict)
    for answer in answers:
        hit = {i for key in answer.keys for i, word in member.get(key, ()) if not word or word in answer.words}
        for i in sorted(hit):
            total, n = found[i].get(answer.row, (0.0, 0))
            found[i][answer.row] = total + answer.score, n + 1
    return found


def _totals(answers: Any) -> Sums:
    found: Sums = {}
    for answer in answers:
        total, n = found.get(answer.row, (0.0, 0))
        found[answer.row] = total + answer.score, n + 1
    return found


def _means(sums: Sums) -> dict[str, float]:
    return {row: total / n for row, (total, n) in sums.items()}


def fisher_less(a: int, n: int, b: int, m: int) -> float:
    """Fisher's exact test, one-sided: the chance of at most `a` of `n` right, if both groups (b of m) were alike."""
    total = math.comb(n + m, a + b)
    return sum(math.comb(n, i) * math.comb(m, a + b - i) for i in range(max(0, a + b - m), a + 1)) / total
