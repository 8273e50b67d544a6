"""Support tickets that can be sorted in several ways; the instruction or the examples say in which."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import words as w
from episodes import Episode, Row, demo_count, held_out, pick

TOPIC_OF = {noun: topic for topic, nouns in w.TOPICS.items() for noun in nouns}
READINGS = ["main", "side", "first", "urgency", "mood", "product", "topic", "vague"]
READING_SHARES = [0.44, 0.09, 0.03, 0.07, 0.07, 0.07, 0.12, 0.11]
FULL = {
    "urgency": list(w.URGENCY),
    "mood": list(w.MOOD),
    "product": w.PRODUCTS,
}


@dataclass
class Ticket:
    text: str
    labels: dict[str, str]  # reading of the task -> the right label
    nouns: set[str]
    combos: set[tuple[str, str]]  # (noun, trouble): one in eight is never trained on


def troubles(noun: str, held: bool) -> list[str]:
    """What may be wrong with a noun: the combinations of training, or those kept for measuring."""
    return [trouble for trouble in w.TROUBLES if held_out(noun, trouble) == held]


def clause(rng: Random, noun: str, held: bool) -> tuple[str, tuple[str, str]]:
    trouble = rng.choice(troubles(noun, held))
    return f"{rng.choice(['my', 'the', 'our'])} {noun} {trouble}", (noun, trouble)


def make_ticket(
    rng: Random,
    codes: dict[str, str],
    *,
    topics: list[str] | None = None,
    need: str = "main",
    held: bool = False,
    code_share: float = 0.15,
    side_share: float = 0.8,
    noun: str | None = None,
) -> Ticket:
    """One ticket. `codes` maps made-up service names to topics; `need` is the label it must have."""
    topics = topics or list(w.TOPICS)
    order = rng.sample(topics, 2) if len(topics) > 1 else [*topics, *topics]
    if noun is not None:
        main = codes.get(noun) or TOPIC_OF[noun]
        order = [main, rng.choice([t for t in topics if t != main] or topics)]
    nouns = []
    for topic in order:
        pool = [c for c, t in codes.items() if t == topic]
        pool = pool if pool and rng.random() < code_share else w.TOPICS[topic]
        nouns.append(rng.choice([n for n in pool if troubles(n, held)] if held else pool))
    if noun is not None:
        nouns[0] = noun

    main_frames = w.HELD_MAIN_FRAMES if held and rng.random() < 0.5 else w.MAIN_FRAMES
    side_frames = w.HELD_SIDE_FRAMES if held and rng.random() < 0.5 else w.SIDE_FRAMES
    text, combo = clause(rng, nouns[0], held)
    parts, combos, labels = [rng.choice(main_frames).format(c=text)], {combo}, {"main": order[0]}
    labels["first"] = labels["side"] = order[0]
    if need == "side" or rng.random() < side_share:
        text, combo = clause(rng, nouns[1], held)
        combos.add(combo)
        first = rng.random() < 0.55  # the open problem often comes second: "first" is a poor reading of it
        parts.insert(0 if first else 1, rng.choice(side_frames).format(c=text))
        labels["side"] = order[1]
        labels["first"] = order[1] if first else order[0]
    else:
        nouns = nouns[:1]
    extras = {"urgency": w.URGENCY, "mood": w.MOOD}
    for name, phrases in extras.items():
        if need == name or rng.random() < 0.2:
            labels[name] = rng.choice(list(phrases))
            parts.insert(rng.randint(0, len(parts)), rng.choice(phrases[labels[name]]))
    if need == "product" or rng.random() < 0.2:
        labels["product"] = rng.choice(w.PRODUCTS)
        parts.insert(rng.randint(0, len(parts)), rng.choice(w.PRODUCT_FRAMES).format(p=labels["product"]))
    return Ticket(" . ".join(parts), labels, set(nouns), combos)


def service_row(
    rng: Random, owners: dict[str, str], code: str, fields: tuple[str, str] = ("text", "label"), *, held: bool = False
) -> Row:
    """A ticket about a made-up service. Which team owns it, only other tickets about it can tell."""
    frames = w.HELD_MAIN_FRAMES if held and rng.random() < 0.5 else w.MAIN_FRAMES
    text, _ = clause(rng, code, held)
    parts = [rng.choice(frames).format(c=text)]
    if rng.random() < 0.2:
        phrases = rng.choice([*w.MOOD.values(), *w.URGENCY.values()])
        parts.insert(rng.randint(0, 1), rng.choice(phrases))
    if rng.random() < 0.15:
        parts.insert(rng.randint(0, len(parts)), rng.choice(w.PRODUCT_FRAMES).format(p=rng.choice(w.PRODUCTS)))
    return Row({fields[0]: " . ".join(parts)}, {fields[1]: owners[code]}, {code}, {code})


def services(rng: Random, *, demos: int | None = None) -> Episode:
    """Tickets about made-up services, and the teams that own them. Examples are all that there is to go by."""
    names = list(w.TOPICS) if rng.random() < 0.5 else w.LABELS[len(w.CODENAMES) :]
    teams = rng.sample(names, rng.randint(2, 5))
    owners = {code: rng.choice(teams) for code in rng.sample(w.CODENAMES, rng.randint(2, 12))}
    fields = ("text", "label") if rng.random() < 0.5 else (rng.choice(w.FIELDS_IN), rng.choice([*w.FIELDS_OUT, "team"]))
    count = demos if demos is not None else rng.randint(3, 11)
    rows: list[Row] = []
    seen: list[str] = []
    for _ in range(count + 1):
        code = rng.choice(seen) if seen and rng.random() < 0.5 else rng.choice(list(owners))
        seen.append(code)
        rows.append(service_row(rng, owners, code, fields))
    values = {fields[1]: teams} if rng.random() < 0.6 else {}
    text = rng.choice(w.SERVICE_TASKS) if rng.random() < 0.7 else rng.choice([*w.VAGUE, "Sort the ticket by topic."])
    if rng.random() < 0.2:
        text = f"{text} {rng.choice(w.FILLERS)}"
    return Episode("services", text, rows, values)


def wording(rng: Random, reading: str, *, held: bool = False) -> str:
    """An instruction for one reading of the task, in one of many wordings."""
    if reading == "vague" and rng.random() < 0.4:
        text = rng.choice(w.VAGUE)
    else:
        criteria = w.HELD_CRITERIA[reading] if held and reading in w.HELD_CRITERIA else w.CRITERIA[reading]
        verb, thing, criterion = rng.choice(w.VERBS), rng.choice(w.THINGS), rng.choice(criteria)
        article = rng.choice(["the", "each", "this", "the"])
        plain = f"{verb} {article} {thing} {criterion}".strip()
        text = plain + "." if rng.random() < 0.9 else plain
        if criterion.startswith("by ") and rng.random() < 0.2:
            text = rng.choice([f"Sort {criterion}.", f"Give the {rng.choice(w.FIELDS_OUT)} {criterion}."])
    if reading in w.HINTS and rng.random() < 0.35:
        text = f"{text} {rng.choice(w.HINTS[reading])}"
    if rng.random() < 0.25:
        filler = rng.choice(w.FILLERS)
        text = f"{filler} {text}" if rng.random() < 0.5 else f"{text} {filler}"
    return text


def code_table(rng: Random, topics: list[str], most: int = 6) -> dict[str, str]:
    return {code: rng.choice(topics) for code in rng.sample(w.CODENAMES, rng.randint(0, most))}


def tickets(rng: Random, *, reading: str | None = None, demos: int | None = None) -> Episode:
    """A training episode: a reading of the task, some examples of it and a last ticket."""
    reading = reading or rng.choices(READINGS, READING_SHARES)[0]
    target = pick(rng, w.MEANT[reading]) if reading in w.MEANT else reading
    by_topic = target in ("main", "side", "first")
    names = list(w.TOPICS) if by_topic else list(FULL[target])
    if rng.random() < 0.2 and len(names) > 2 and by_topic:
        names = rng.sample(names, rng.randint(2, 4))
    topics = names if by_topic else list(w.TOPICS)
    codes = code_table(rng, topics) if rng.random() < 0.6 else {}
    rename = dict(zip(names, names, strict=True))
    renamed = rng.random() < 0.12
    if renamed:  # label names whose meaning only the examples tell
        rename = dict(zip(names, rng.sample(w.LABELS, len(names)), strict=True))
    count = demo_count(rng) if demos is None else demos
    if renamed:
        count = max(count, 3)
    field_in, field_out = rng.choice(w.FIELDS_IN), rng.choice(w.FIELDS_OUT)
    if rng.random() < 0.35:
        field_in, field_out = "text", "label"
    if not renamed and rng.random() < 0.1:
        field_out = {"main": "topic", "first": "topic", "side": "topic"}.get(target, target)
    similar = rng.random() < 0.5
    code_share = rng.choice([0.1, 0.3, 0.6])
    rows: list[Row] = []
    seen: list[str] = []
    for i in range(count + 1):
        # Repeat a noun of an earlier row, so that looking for a similar example pays.
        again = rng.choice(seen) if similar and seen and rng.random() < (0.7 if i == count else 0.35) else None
        ticket = make_ticket(rng, codes, topics=topics, need=target, noun=again, code_share=code_share)
        seen += sorted(n for n in ticket.nouns if (codes.get(n) or TOPIC_OF[n]) == ticket.labels["main"])
        label = ticket.labels[target]
        needs = {n for n in ticket.nouns if codes.get(n) == label} if by_topic else set()
        if renamed:
            needs = needs | {f"label {label}"}
        rows.append(Row({field_in: ticket.text}, {field_out: rename[label]}, ticket.nouns, needs))
    values = {field_out: rng.sample(list(rename.values()), len(names))} if rng.random() < 0.6 else {}
    return Episode("tickets", wording(rng, reading), rows, values)
