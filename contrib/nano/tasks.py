"""The other task families: word lists, labels known only from examples, sums, look-ups in facts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import words as w
from episodes import Episode, Row, demo_count, held_out
from tickets import services, tickets

STEP_FIELDS = "steps reasoning work plan thoughts".split()


def with_filler(rng: Random, text: str) -> str:
    return f"{text} {rng.choice(w.FILLERS)}" if rng.random() < 0.15 else text


def list_row(rng: Random, task: str, held: bool = False) -> Row:
    while True:
        groups = [g for g in w.GROUPS if g not in ("animal", "color")]
        chosen = rng.sample([x for g in groups for x in w.GROUPS[g]], rng.randint(2, 4))
        for group in ("animal", "color"):
            if task == group or rng.random() < 0.4:
                chosen.insert(rng.randint(0, len(chosen)), rng.choice(w.GROUPS[group]))
        if held_out(*chosen) == held:
            break
    one_of = {g: next((x for x in chosen if x in w.GROUPS[g]), "") for g in ("animal", "color")}
    answers = {
        "first": chosen[0],
        "last": chosen[-1],
        "second": chosen[1],
        "count": str(len(chosen)),
        "reverse": " ".join(reversed(chosen)),
        **one_of,
    }
    return Row({"words": " ".join(chosen)}, {"answer": answers[task]}, set(chosen))


def lists(rng: Random) -> Episode:
    """The instruction says what to do with a list of words; a vague one leaves it to the examples."""
    task = rng.choice(list(w.LIST_TASKS))
    text = rng.choice(w.VAGUE) if rng.random() < 0.35 else with_filler(rng, rng.choice(w.LIST_TASKS[task]))
    rows = [list_row(rng, task) for _ in range(demo_count(rng, 6) + 1)]
    return Episode("lists", text, rows)


def copies(rng: Random) -> Episode:
    """Copy or turn round a list: plain practice in finding what follows what."""
    turned = rng.random() < 0.2
    text = "Write the words in reverse order." if turned else rng.choice(["Copy the list.", "Repeat the words."])
    rows = []
    for _ in range(rng.choice([1, 1, 2])):
        some = rng.sample(w.LABELS, rng.randint(3, 6) if turned else rng.randint(4, 16))
        answer = some[::-1] if turned else some
        rows.append(Row({"words": " ".join(some)}, {"answer": " ".join(answer)}))
    return Episode("copies", text, rows)


def recall(rng: Random) -> Episode:
    """The plainest label game: bare words that come again. Training begins with it."""
    return mapping(rng, plain=True)


def mapping(rng: Random, *, demos: int | None = None, plain: bool = False) -> Episode:
    """Labels that mean nothing by themselves: word -> label, or group of words -> label."""
    grouped = not plain and rng.random() < 0.3
    field_in, field_out = rng.choice(["word", "text", "input", "item"]), rng.choice(w.FIELDS_OUT)
    labels = rng.sample(w.LABELS, rng.randint(2, 5))
    frames = ["the {} is here", "i saw the {} today", "please look at the {}"]
    frame = "{}" if plain or rng.random() < 0.5 else rng.choice(frames)
    count = demos if demos is not None else rng.randint(3, 18)
    rows = []
    if grouped:
        groups = rng.sample(list(w.GROUPS), len(labels))
        for _ in range(count + 1):
            i = rng.randrange(len(groups))
            word = rng.choice(w.GROUPS[groups[i]])
            rows.append(Row({field_in: frame.format(word)}, {field_out: labels[i]}, {groups[i]}, {groups[i]}))
    else:
        pool = w.CODENAMES if rng.random() < 0.5 else w.WORDS
        table = {key: rng.choice(labels) for key in rng.sample(pool, rng.randint(2, 7))}
        for _ in range(count + 1):
            key = rng.choice(list(table))
            rows.append(Row({field_in: frame.format(key)}, {field_out: table[key]}, {key}, {key}))
    values = {field_out: labels} if not plain and rng.random() < 0.4 else {}
    text = rng.choice([*w.VAGUE, *w.FILLERS, "Label the text.", "Classify the word.", "Use the right label."])
    return Episode("mapping", "" if plain or rng.random() < 0.15 else text, rows, values)


def sum_row(rng: Random, terms: int, *, steps: str | None, held: bool = False) -> Row:
    while True:
        numbers = [rng.randint(1, 9) for _ in range(terms)]
        question = " + ".join(map(str, numbers))
        if held_out(question) == held or terms == 2:
            break
    outputs: dict[str, str] = {}
    if steps:
        # Start anywhere and go round: several right ways to one answer, so that votes are not all alike.
        start = rng.randrange(terms)
        turned = numbers[start:] + numbers[:start]
        total, lines = turned[0], []
        for number in turned[1:]:
            lines.append(f"{total} + {number} = {total + number}")
            total += number
        outputs[steps] = ", ".join(lines)
    outputs["answer"] = str(sum(numbers))
    return Row({"question": question}, outputs)


def sums(rng: Random) -> Episode:
    """Sums, in one go or by steps."""
    stepwise = rng.random() < 0.72
    steps = ("steps" if rng.random() < 0.5 else rng.choice(STEP_FIELDS)) if stepwise else None
    hint = rng.choice(w.STEP_HINTS) if stepwise else ""
    text = f"{rng.choice(w.SUM_TASKS)} {hint}".strip()
    count = rng.choice([0, 0, 1, 2, 3] if stepwise else [0, 2, 4, 8])
    return Episode("sums", text, [sum_row(rng, rng.randint(2, 6), steps=steps) for _ in range(count + 1)])


def fact_row(rng: Random, kind: str, *, steps: str | None = None, held: bool = False) -> Row:
    """Who has which animal, which animal has which color: one hop or two."""
    size = rng.randint(3, 4)
    people, animals = rng.sample(w.NAMES, size), rng.sample(w.GROUPS["animal"], size)
    while True:
        colors = rng.sample(w.GROUPS["color"], size)
        i = rng.randrange(size)
        if held_out(animals[i], colors[i]) == held:
            break
    facts = [f"{p} has the {a}" for p, a in zip(people, animals, strict=True)]
    facts += [f"the {a} is {c}" for a, c in zip(animals, colors, strict=True)]
    rng.shuffle(facts)
    inputs = {"facts": " . ".join(facts)}
    person, animal, color = people[i], animals[i], colors[i]
    if kind == "animal":  # the first hop alone
        if rng.random() < 0.5:
            return Row({**inputs, "person": person}, {"animal": animal})
        return Row({**inputs, "question": f"Which animal has {person}?"}, {"answer": animal})
    if kind == "color":  # the second hop alone
        if rng.random() < 0.5:
            return Row({**inputs, "animal": animal}, {"color": color})
        return Row({**inputs, "question": f"Which color is the {animal}?"}, {"answer": color})
    outputs = {steps: f"{person} has the {animal}, the {animal} is {color}"} if steps else {}
    return Row({**inputs, "question": f"Which color is the animal of {person}?"}, {**outputs, "answer": color})


def facts(rng: Random) -> Episode:
    """Look-ups in facts. Two hops in one go are hard for a model this small; by steps they are easy."""
    kind = rng.choice(["animal", "color", "both", "both"])
    steps = None
    if kind == "both" and rng.random() < 0.7:
        steps = "steps" if rng.random() < 0.5 else rng.choice(STEP_FIELDS)
    text = rng.choice(w.FACT_TASKS) if rng.random() < 0.8 else rng.choice(w.VAGUE)
    if steps:
        text = f"{text} {rng.choice(w.STEP_HINTS)}".strip()
    count = rng.choice([0, 0, 1, 2])
    state = rng.random()  # all rows of an episode ask in the same form
    rows = []
    while len(rows) <= count:
        row = fact_row(Random(rng.random()), kind, steps=steps)
        if kind == "both" or ("question" in row.inputs) == (state < 0.5):
            rows.append(row)
    return Episode("facts", text, rows)


FAMILIES: dict[Callable[[Random], Episode], float] = {
    tickets: 0.38,
    services: 0.11,
    lists: 0.05,
    copies: 0.02,
    mapping: 0.12,
    sums: 0.18,
    facts: 0.14,
}


def episode(rng: Random) -> Episode:
    """A random training episode."""
    return rng.choices(list(FAMILIES), list(FAMILIES.values()))[0](rng)


def label_games(rng: Random) -> Episode:
    """Only tasks whose answers stand in the examples."""
    return rng.choice([recall, mapping, services, services])(rng)
