"""Turns as rows: redacted, without duplicates, in groups that splits keep whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from workbench.base.hashing import digest
from workbench.task import tokenize
from workbench_traces.redact import Redactor
from workbench_traces.turn import Turn

Row = dict[str, Any]


@dataclass(frozen=True)
class Labels:
    """The source of the correct answer.

    score: the outcome that counts; None: the only one there is. low, high: its range, which is mapped to 0 to 1.
    accept: an answer with at least this outcome is right.
    """

    score: str | None = None
    low: float = 0.0
    high: float = 1.0
    accept: float = 1.0


@dataclass
class Account:
    """Counts of turns that became rows, and of the others by reason."""

    turns: int = 0
    empty: int = 0
    exact: int = 0
    normalised: int = 0
    redacted: Counter[str] = field(default_factory=Counter)
    score: str | None = None
    scores: Counter[str] = field(default_factory=Counter)
    out_of_range: int = 0


def make_rows(turns: Sequence[Turn], labels: Labels, redactor: Redactor) -> tuple[list[Row], Account]:
    """Make rows from turns, in order, and count them.

    All content of a row has passed the redactor. Rows with equal questions, chats and answers are merged; one with an
    outcome is preferred.
    """
    account = Account(turns=len(turns), redacted=redactor.counts)
    account.scores.update(name for turn in turns for name in turn.scores)
    account.score = labels.score or (next(iter(account.scores)) if len(account.scores) == 1 else None)
    names = _Pseudonyms(redactor)
    kept: dict[str, Row] = {}
    written: dict[str, str] = {}
    for turn in turns:
        if not turn.input.strip() or not turn.output.strip():
            account.empty += 1
            continue
        row = _row(turn, labels, account, redactor, names)
        key = digest([tokenize(text) for text in _texts(row)])
        if key not in kept:
            kept[key], written[key] = row, digest(_texts(row))
        else:
            account.exact += written[key] == digest(_texts(row))
            account.normalised += written[key] != digest(_texts(row))
            if _is_labelled(row) and not _is_labelled(kept[key]):
                kept[key] = row
    return list(kept.values()), account


def _texts(row: Row) -> list[str]:
    return [*(f"{m['role']}: {m['content']}" for m in row["messages"]), row["input"], row["output"]]


def _is_labelled(row: Row) -> bool:
    return "answer" in row or "score" in row


class _Pseudonyms:
    """Names for users and conversations whose own names had to be redacted: numbers, so that equal names stay equal,
    and nothing can be guessed from them."""

    def __init__(self, redactor: Redactor):
        self.redactor, self.known = redactor, dict[str, str]()

    def name(self, what: str, given: str) -> str:
        told = self.redactor.text(given)
        return told if told == given else self.known.setdefault(f"{what} {given}", f"{what}-{len(self.known) + 1}")


def _row(turn: Turn, labels: Labels, account: Account, redactor: Redactor, names: _Pseudonyms) -> Row:
    last = max((n for n, (role, _) in enumerate(turn.messages) if role == "user"), default=0)
    chat = [f"{role}: {text}" for role, text in turn.messages[:last] if role in ("user", "assistant", "tool")]
    asked, said, source = redactor.text(turn.input), redactor.text(turn.output), redactor.value(turn.source)
    row: Row = {
        "id": digest([source, asked, said]),
        "input": asked,
        "output": said,
        "history": redactor.text("\n".join(chat)),
        "messages": [{"role": redactor.text(role), "content": redactor.text(text)} for role, text in turn.messages],
        "conversation": names.name("conversation", turn.conversation),
        "user": names.name("user", turn.user),
        "time": None if turn.time is None else datetime.fromtimestamp(turn.time, UTC).isoformat(),
        "source": source,
    }
    score = turn.scores.get(account.score) if account.score is not None else None
    if score is not None and not labels.low <= score <= labels.high:
        account.out_of_range += 1
        score = None
    if score is not None:
        row["score"] = (score - labels.low) / (labels.high - labels.low)
    if turn.scores:
        row["scores"] = redactor.value(turn.scores)
    if turn.edit:
        row["answer"] = redactor.text(turn.edit)
    elif score is not None and row["score"] >= labels.accept:
        row["answer"] = row["output"]
    if turn.comments:
        row["comment"] = redactor.text("\n".join(dict.fromkeys(turn.comments)))
    return row


# Groups


def group_rows(rows: Sequence[Row], by: str) -> list[str]:
    """Return the group of each row, which splits keep whole: rows of one conversation, and with by="user" of one user.

    Rows without a conversation are grouped if they begin with the same question and answer, like the parts of a chat
    that was recorded turn by turn.
    """
    from networkx.utils import UnionFind  # pyright: ignore[reportMissingTypeStubs]

    groups: Any = UnionFind(range(len(rows)))
    first: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows):
        groups.union(number, *(first.setdefault(key, number) for key in _links(row, by)))
    names: dict[int, str] = {}
    return [names.setdefault(groups[n], f"group-{len(names) + 1}") for n in range(len(rows))]


def _links(row: Row, by: str) -> Iterable[tuple[str, str]]:
    if row["conversation"]:
        yield "conversation", row["conversation"]
    else:
        said = [(m["role"], m["content"]) for m in row["messages"] if m["role"] in ("user", "assistant")]
        said = [*said, ("assistant", row["output"])] if said else [("user", row["input"]), ("assistant", row["output"])]
        yield "opening", digest(said[:2])
    if by == "user" and row["user"]:
        yield "user", row["user"]


def cut_by_time(rows: Sequence[Row], groups: Sequence[str], shares: tuple[float, float, float]) -> list[list[Row]]:
    """Return train, val and test in the order of time, with the newest groups last, so that the test comes after the
    training data. Rows without a time come first. A group is as old as its first row, and stays whole."""
    members: dict[str, list[Row]] = {}
    for group, row in zip(groups, rows, strict=True):
        members.setdefault(group, []).append(row)
    order = sorted(members.values(), key=lambda of: min(row["time"] or "" for row in of))
    parts: list[list[Row]] = [[], [], []]
    done, ends = 0, (shares[0] * len(rows), (shares[0] + shares[1]) * len(rows))
    for of in order:
        middle = done + len(of) / 2
        parts[sum(middle > end for end in ends)].extend(of)
        done += len(of)
    return parts
