"""What nano can do on held-out rows, and the four effects that an optimizer can use, with 95% intervals.

python contrib/nano/measure.py --rows 240
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import words as w
from episodes import Episode, Row, assistant_text, render
from generate import CODES, quickstart_tickets, service_rows, sum_rows
from tasks import episode, fact_row, list_row, mapping

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "standard"))
from workbench_nano.model import Nano

LABEL_VALUES = {"label": list(w.TOPICS)}
POOR = "Sort the support ticket by topic."
CLEAR = "Classify the ticket by the problem that is still open. Ignore solved problems."


@dataclass
class Bench:
    model: Nano

    def answers(
        self, episodes: Sequence[Episode], *, temperature: float = 0.0, seed: int = 0, most: int = 48
    ) -> list[str]:
        chats = [render(e, answer=False) for e in episodes]
        seeds = [seed * 100_003 + i for i in range(len(chats))]
        found = self.model.generate(chats, max_tokens=most, temperature=temperature, seeds=seeds)
        return [c.text for c in found]

    def right(self, episodes: Sequence[Episode], last: bool = False, **how: float) -> np.ndarray:
        """1 or 0 for each episode: is the whole answer, or only its last field, right?"""
        cut = field_value if last else str
        wanted = [cut(assistant_text(e.rows[-1])) for e in episodes]
        pairs = zip(self.answers(episodes, **how), wanted, strict=True)  # type: ignore[arg-type]
        return np.array([cut(a) == b for a, b in pairs], float)


def field_value(answer: str) -> str:
    """The value of the last field of an answer."""
    return answer.split("\n")[-1].rpartition(": ")[2].strip()


def interval(right: np.ndarray) -> str:
    """A share with its 95% Wilson interval."""
    n, p, z = len(right), right.mean(), 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{p:.3f} [{max(0.0, middle - half):.3f}, {min(1.0, middle + half):.3f}] n={n}"


def gain(new: np.ndarray, old: np.ndarray) -> str:
    """The mean difference on the same rows with its 95% interval."""
    d = new - old
    half = 1.96 * d.std(ddof=1) / np.sqrt(len(d))
    return f"{d.mean():+.3f} [{d.mean() - half:+.3f}, {d.mean() + half:+.3f}]"


def line(name: str, right: np.ndarray, base: np.ndarray | None = None) -> None:
    print(f"| {name} | {interval(right)} | {gain(right, base) if base is not None else ''} |", flush=True)


def heading(text: str) -> None:
    print(f"\n### {text}\n\n| what | accuracy | gain over the first line |\n| - | - | - |")


def ticket_rows(rows: int, seed: int = 2027) -> list[Row]:
    return [Row({"text": t.text}, {"label": t.labels["main"]}, t.nouns) for t in quickstart_tickets(rows, seed)]


def with_demos(rows: list[Row], pool: list[Row], count: int, how: str, text: str, values: bool) -> list[Episode]:
    """Each row with `count` examples of the pool: random ones, or those that share a noun first."""
    rng = Random(5)
    episodes = []
    for row in rows:
        order = rng.sample(pool, len(pool))
        if how == "similar":
            order.sort(key=lambda other: len(other.keys & row.keys), reverse=True)
        demos = order[:count][::-1]  # the most similar one last
        episodes.append(Episode("tickets", text, [*demos, row], LABEL_VALUES if values else {}))
    return episodes


def families(bench: Bench, rows: int) -> None:
    heading("New episodes of the training mix, by family (whole answer right)")
    rng = Random(987_654_321)
    by_family: dict[str, list[Episode]] = {}
    while min(map(len, by_family.values()), default=0) < rows or len(by_family) < 6:
        e = episode(rng)
        if e.instructions not in w.VAGUE or e.family == "mapping":
            by_family.setdefault(e.family, []).append(e)
    for family, episodes in sorted(by_family.items()):
        line(family, bench.right(episodes[:rows], last=True))
    for task in w.LIST_TASKS:
        clear = [Episode("lists", w.LIST_TASKS[task][0], [list_row(rng, task, held=True)]) for _ in range(rows // 2)]
        line(f"word list: {task}, held-out lists, no examples", bench.right(clear))


def wordings(bench: Bench, rows: int) -> None:
    test = ticket_rows(rows)
    for values in (True, False):
        heading(f"(a) Instruction wording: held-out tickets, no examples, value line {'on' if values else 'off'}")
        base = None
        for text in [
            "Do the task.",
            "Classify the ticket.",
            POOR,
            "Label the mail by what it is about.",
            "Sort the request by its main problem.",
            "Route the ticket by the current problem.",
            CLEAR,
            "Classify the ticket by the problem that needs help now.",
            "Find the thing that the customer still needs fixed.",
            "Classify the ticket by the problem that is already solved.",
            "Classify the ticket by urgency.",
        ]:
            right = bench.right(with_demos(test, [], 0, "random", text, values))
            base = right if base is None else base
            line(text, right, base)


def examples(bench: Bench, rows: int) -> None:
    every = ticket_rows(rows + 120)
    pool, test = every[:120], every[120:]
    for name, text, values in (
        ("poor", POOR, True),
        ("vague", "Do the task.", False),
        ("clear", CLEAR, True),
    ):
        heading(f"(b) Examples: held-out tickets, {name} instruction, value line {'on' if values else 'off'}")
        base = bench.right(with_demos(test, [], 0, "random", text, values))
        line("0 examples", base)
        for count in (1, 2, 4, 8):
            for how in ("random", "similar"):
                right = bench.right(with_demos(test, pool, count, how, text, values))
                line(f"{count} {how} examples", right, base)
    coded = np.array([bool(row.keys & set(CODES)) for row in test])
    heading("(b) the tickets with a made-up service name alone (clear instruction, value line on)")
    base = bench.right(with_demos(test, [], 0, "random", CLEAR, True))[coded]
    line("0 examples", base)
    for how in ("random", "similar"):
        line(f"4 {how} examples", bench.right(with_demos(test, pool, 4, how, CLEAR, True))[coded], base)


def services(bench: Bench, rows: int) -> None:
    every = service_rows(rows + 120)
    pool, test = every[:120], every[120:]
    heading("(b) Examples: tickets about twelve made-up services, held-out rows, value line on")
    text = "Send the ticket to the right team."
    base = bench.right(with_demos(test, [], 0, "random", text, True))
    line("0 examples", base)
    for count in (1, 2, 4, 8, 12):
        chance = bench.right(with_demos(test, pool, count, "random", text, True))
        similar = bench.right(with_demos(test, pool, count, "similar", text, True))
        line(f"{count} random examples", chance, base)
        line(f"{count} similar examples", similar, base)
        print(f"| {count} similar against {count} random | | {gain(similar, chance)} |", flush=True)


def label_games(bench: Bench, rows: int) -> None:
    heading("(b) Labels known only from the examples (new episodes)")
    base = None
    for count in (0, 2, 4, 8, 12):
        rng = Random(77)
        right = bench.right([mapping(rng, demos=count) for _ in range(rows)])
        base = right if base is None else base
        line(f"{count} examples", right, base)


def as_steps(rows: list[Row], text: str, field: str = "steps") -> list[Episode]:
    return [Episode("sums", text, [Row(r.inputs, {field: "", **r.outputs})]) for r in rows]


def votes(bench: Bench, rows: int) -> None:
    test = sum_rows(rows)
    wanted = [r.outputs["answer"] for r in test]
    episodes = as_steps(test, "Add the numbers. Show the steps.")
    for heat in (1.0,):
        heading(f"(c) Votes: sums of 5 or 6 numbers by steps, temperature {heat}")
        samples = [
            [field_value(a) for a in bench.answers(episodes, temperature=heat, seed=s, most=64)] for s in range(1, 10)
        ]

        def score(count: int, samples: list[list[str]] = samples) -> np.ndarray:
            each = zip(*samples[:count], strict=True)
            best = [Counter(answers).most_common(1)[0][0] for answers in each]
            return np.array([b == a for b, a in zip(best, wanted, strict=True)], float)

        greedy = [field_value(a) for a in bench.answers(episodes, most=64)]
        base = np.array([g == a for g, a in zip(greedy, wanted, strict=True)], float)
        line("greedy, one answer", base)
        for count in (1, 3, 5, 9):
            line(f"vote of {count} samples" if count > 1 else "one sample", score(count), base)


def steps(bench: Bench, rows: int) -> None:
    for low, high in ((4, 4), (5, 6)):  # fewer than 4 numbers: too few kept-out sums
        heading(f"(d) Steps: sums of {low}{'' if low == high else ' or 6'} numbers")
        test = sum_rows(rows, seed=41, terms=(low, high))
        base = bench.right([Episode("sums", "Add the numbers.", [row]) for row in test], last=True)
        line("answer in one go", base)
        line(
            "steps, then answer",
            bench.right(as_steps(test, "Add the numbers. Show the steps."), last=True, most=64),
            base,
        )
    heading("(d) Steps: the color of the animal of a person, held-out facts")
    rng = Random(42)
    test = [fact_row(rng, "both", held=True) for _ in range(rows)]
    text = "Use the facts to answer."
    base = bench.right([Episode("facts", text, [row]) for row in test])
    line("answer in one go", base)
    line("steps, then answer", bench.right(as_steps(test, text), last=True), base)
    people = [row.inputs["question"].split()[-1].rstrip("?") for row in test]
    hop1 = [
        Episode("facts", text, [Row({"facts": r.inputs["facts"], "person": p}, {"animal": ""})])
        for r, p in zip(test, people, strict=True)
    ]
    hop2 = [
        Episode("facts", text, [Row({"facts": r.inputs["facts"], "animal": a}, {"color": r.outputs["answer"]})])
        for r, a in zip(test, bench.answers(hop1), strict=True)
    ]
    line("two nodes, one hop each", bench.right(hop2), base)


def speed(bench: Bench, rows: int) -> None:
    pool = ticket_rows(rows + 8, seed=99)
    episodes = with_demos(pool[8:], pool[:8], 3, "random", CLEAR, True)
    fixed = [Episode(e.family, e.instructions, [*episodes[0].rows[:-1], e.rows[-1]], e.values) for e in episodes]
    print("\n### Speed\n")
    for name, group in (("same examples in all prompts", fixed), ("other examples in each prompt", episodes)):
        began = time.perf_counter()
        bench.answers(group, most=4)
        rate = len(group) / (time.perf_counter() - began)
        size = sum(len(bench.model.prompt_ids(render(e, answer=False))) for e in group) / len(group)
        print(f"- {name}: {rate:.0f} chats a second (prompts of {size:.0f} tokens)")


PARTS: dict[str, Callable[[Bench, int], None]] = {
    "families": families,
    "wordings": wordings,
    "examples": examples,
    "services": services,
    "label_games": label_games,
    "votes": votes,
    "steps": steps,
    "speed": speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    options = parser.parse_args()
    bench = Bench(Nano.load(options.weights))
    for name in options.parts:
        PARTS[name](bench, options.rows)


if __name__ == "__main__":
    main()
