"""Logs of sums with one wrong sum, and judges that check sums. No model is involved."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.judges import Answer, Ask, Judge
from workbench_attribute.methods import METHODS
from workbench_attribute.prompts import Messages
from workbench_attribute.settings import Judging
from workbench_kit.logs import Log, LogStep

AGENTS = ("Adder", "Checker", "Writer")
_STEP = re.compile(r"^Step (\d+), (\w+).*?: .*?(\d+) \+ (\d+) = (\d+)", re.MULTILINE)


def planted(steps: int, fault: int, seed: int = 0, padding: int = 0) -> Log:
    """A log of sums of which just one, at step `fault`, is wrong. padding: characters after each."""
    rng = random.Random(f"{seed}:{steps}:{fault}")
    made = []
    for number in range(steps):
        a, b = rng.randrange(100), rng.randrange(100)
        text = f"I find {a} + {b} = {a + b + (number == fault)}" + " ." * (padding // 2)
        made.append(LogStep(rng.choice(AGENTS), text))
    gold = made[fault].agent
    return Log(f"planted-{steps}-{fault}-{seed}", tuple(made), "Add up.", "42", gold_agent=gold, gold_step=fault)


def say_rule(messages: Messages) -> str:
    """The answer of a judge that finds the first wrong sum in what it is shown."""
    text = messages[-1]["content"]
    sums = [(int(n), who, int(a) + int(b) == int(c)) for n, who, a, b, c in _STEP.findall(text)]
    wrong = [(n, who) for n, who, right in sums if not right]
    if asked := re.search(r"Is step (\d+), by", text):
        return f"Answer: {'Yes' if (int(asked[1]) in [n for n, _ in wrong]) else 'No'}\nReason: the sum"
    if half := re.search(r"first half \(steps \d+ to (\d+)\)", text):
        return f"Answer: {'First' if wrong and wrong[0][0] <= int(half[1]) else 'Second'}\nReason: the sum"
    number, who = wrong[0] if wrong else sums[0][:2]
    return f"Agent: {who}\nStep: {number}\nReason: the sum of step {number}"


def oracle(say: Callable[[Messages], str] = say_rule, seen: list[Messages] | None = None) -> Ask:
    """A judge that answers by a rule; it records what it is asked."""

    async def ask(messages: Messages, vote: int) -> Answer:
        if seen is not None:
            seen.append(messages)
        return Answer(say(messages))

    return ask


def diagnose(log: Log, method: str, ask: Ask, logs: Sequence[Log] = (), **settings: Any) -> Diagnosis:
    """The diagnosis of one log by a judge that is a function. logs: of the command, this one among them."""

    async def main() -> Diagnosis:
        judging = Judging.model_validate({"method": method, **settings})
        return await METHODS[method](log, Judge(ask, judging, tuple(logs) or (log,)))

    return asyncio.run(main())
