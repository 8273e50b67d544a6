"""The data of nano.

    python contrib/nano/generate.py --show 5       print some training episodes
    python contrib/nano/generate.py --quickstart   write the task files of the workflows
    python contrib/nano/generate.py --tool-calls   write that of workflows/tool_calls.yaml

The task files hold rows that nano has never been trained on: every clause of a ticket joins a noun and a
trouble that no training text joins, half of the frames around them are new, and the sums and facts come
from a part that training leaves out. The overlap with 40,000 training episodes is counted and printed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

import words as w
from episodes import Row, render
from tasks import episode, fact_row, sum_row
from tickets import Ticket, make_ticket, service_row

WORKFLOWS = Path(__file__).parents[2] / "workflows" / "data"
ROWS = 360
# The services of the quickstart's shop. No instruction tells where they belong; some training rows do.
CODES = {
    "nexil": "technical",
    "pazzo": "billing",
    "kelvo": "shipping",
    "omdar": "account",
    "fipsy": "returns",
}


# Who owns which service: nothing but the training rows tells.
OWNERS = dict(
    zip(
        "lurvi plinto kelvo cobyx dunto velka tarsi boglu fenzo quilo ravik sompa".split(),
        "billing shipping account technical returns billing shipping account technical returns billing "
        "shipping".split(),
        strict=True,
    )
)


def service_rows(rows: int, seed: int = 2030) -> list[Row]:
    rng = Random(seed)
    found: dict[str, Row] = {}
    while len(found) < rows:
        row = service_row(rng, OWNERS, rng.choice(list(OWNERS)), held=True)
        found[row.inputs["text"]] = row
    return list(found.values())


def quickstart_tickets(rows: int, seed: int = 2027) -> list[Ticket]:
    rng = Random(seed)
    tickets: dict[str, Ticket] = {}
    while len(tickets) < rows:
        ticket = make_ticket(rng, CODES, held=True, side_share=0.85, code_share=0.15)
        tickets[ticket.text] = ticket
    return list(tickets.values())


def sum_rows(rows: int, seed: int = 2028, terms: tuple[int, int] = (5, 6)) -> list[Row]:
    rng = Random(seed)
    found: dict[str, Row] = {}
    while len(found) < rows:
        row = sum_row(rng, rng.randint(*terms), steps=None, held=True)
        found[row.inputs["question"]] = row
    return list(found.values())


def fact_rows(rows: int, seed: int = 2029) -> list[Row]:
    rng = Random(seed)
    return [fact_row(rng, "both", held=True) for _ in range(rows)]


def tool_calls(seed: int = 9300) -> dict[str, list[dict[str, Any]]]:
    """Tickets of two problems, and the call that closes the one that is settled, as train, val and test. Some of train
    have a worked answer, the thought and the call: those whose problems belong to one team, so that they show the form
    and not which problem counts."""
    rng = Random(seed)
    known: set[str] = set()

    def draw(count: int, worked: bool) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            topics = [rng.choice(list(w.TOPICS))] if worked else None
            ticket = make_ticket(rng, {}, topics=topics, held=True, side_share=1.0)
            if ticket.text not in known:
                known.add(ticket.text)
                team = ticket.labels["side"]
                call = {"name": "close", "arguments": {"team": team}}
                said = f"<think> {team} </think><tool_call>{json.dumps(call, separators=(',', ':'))}</tool_call>"
                found.append({"text": ticket.text, "calls": [call]} | ({"worked": said} if worked else {}))
        return found

    train = draw(100, True) + draw(240, False)
    return {"train": train, "val": draw(60, False), "test": draw(150, False)}


def overlap(tickets: list[Ticket], others: list[Row], episodes: int = 40_000) -> dict[str, int]:
    """How often the held-out rows, or their noun-trouble pairs, turn up in training episodes."""
    rng = Random(1)  # the seed of the training data
    lines: set[str] = set()
    pairs = {f"{noun} {trouble}" for t in tickets for noun, trouble in t.combos}
    seen_pairs: set[str] = set()
    for _ in range(episodes):
        for message in render(episode(rng)):
            for line in message["content"].split("\n"):
                value = line.partition(": ")[2]
                lines.add(value)
                if message["role"] == "user":
                    words = value.split()
                    for i in range(len(words) - 1):  # a trouble has two to five words
                        for size in range(2, 6):
                            seen_pairs.add(" ".join(words[i : i + size + 1]))
    return {
        "training lines": len(lines),
        "ticket texts seen in training": sum(t.text in lines for t in tickets),
        "noun-trouble pairs": len(pairs),
        "noun-trouble pairs seen in training": len(pairs & seen_pairs),
        "sums, facts and service tickets seen in training": sum(next(iter(r.inputs.values())) in lines for r in others),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{path}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=0, help="print so many training episodes")
    parser.add_argument("--quickstart", action="store_true", help="write the task files")
    parser.add_argument("--tool-calls", action="store_true", help="write the rows with tool calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=WORKFLOWS)
    options = parser.parse_args()
    rng = Random(options.seed)
    for _ in range(options.show):
        for message in render(episode(rng)):
            print(f"<|{message['role']}|> {message['content']}")
        print()
    if options.tool_calls:
        for split, found in tool_calls().items():
            write(options.out / "tool_calls" / f"{split}.jsonl", found)
    if options.quickstart:
        tickets = quickstart_tickets(ROWS)
        sums, facts, services = sum_rows(ROWS), fact_rows(ROWS), service_rows(ROWS)
        write(options.out / "tickets.jsonl", [{"text": t.text, "label": t.labels["main"]} for t in tickets])
        write(options.out / "sums.jsonl", [row.inputs | row.outputs for row in sums])
        write(options.out / "facts.jsonl", [row.inputs | row.outputs for row in facts])
        write(options.out / "services.jsonl", [row.inputs | row.outputs for row in services])
        counts = {topic: sum(t.labels["main"] == topic for t in tickets) for topic in w.TOPICS}
        first = sum(t.labels["main"] == t.labels["first"] for t in tickets) / len(tickets)
        coded = sum(bool(t.nouns & set(CODES)) for t in tickets) / len(tickets)
        print(f"labels {counts}; first topic is the right one: {first:.2f}; with a service name: {coded:.2f}")
        print(overlap(tickets, sums + facts + services))


if __name__ == "__main__":
    main()
