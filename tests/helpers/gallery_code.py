"""What a scripted model says in the workflows of the gallery whose agents write code."""

from __future__ import annotations

import re

from tests.helpers.gallery_loops import listed, shown
from tests.helpers.gallery_speech import Case, code, numbers

#: Characters that the model of cave_agent can read.
WINDOW = 3_000


# CodeAct: a loop over the fruits of the question.

FRUITS = ("lemon", "banana", "apple", "kiwi", "fig", "pear", "date", "mango", "cherry", "plum")


def loop_over_fruits(found: re.Match[str]) -> str:
    counted = re.findall(r"(\d+) times? (\w+)", found[1])
    named = [word for word in re.findall(r"\w+", found[1]) if word in FRUITS] * (2 if "twice" in found[1] else 1)
    basket = [name for count, name in counted for _ in range(int(count))] or named
    return code("total = 0", f"for fruit in {basket}:", "    total += price(fruit)", "print('total', total)")


# CaveAgent: each cell builds on the variable of the one before, and columns are known from the first result.


def narrow_down(found: re.Match[str]) -> str:
    if len(found.string) > WINDOW:
        return "note: too long to read"
    question = re.findall(r"question: (.*)", found.string)[0]
    results = re.findall(r"(?m)^result: (.*)$", found.string)
    if not results:
        return code("table[0]")
    customers = re.findall(r"C\d+", question)
    if len(results) == 1:
        name = re.findall(r"'(\w+)': 'C\d+'", results[0])
        theirs = f"row[{name[0]!r}] in {customers}" if customers else "True"
        return code(f"theirs = [row for row in table if {theirs}]", "len(theirs)")
    name = re.findall(r"'(\w+)': '(?:sent|open|returned)'", results[0])
    states = [state for state in ("sent", "open", "returned") if state in question]
    wanted = [f"row[{name[0]!r}] {'not in' if 'not returned' in question else 'in'} {states}"] if states else []
    for words, column, sign in (("more than", "cost", ">"), ("less than", "cost", "<"), ("id below", "id", "<")):
        wanted += [f"row[{column!r}] {sign} {limit}" for limit in re.findall(rf"{words} (\d+)", question)]
    chosen = f"chosen = [row for row in theirs if {' and '.join(wanted or ['True'])}]"
    return code(chosen) if len(results) == 2 else "note: chosen"


# PoAct: who is offered `pay` pays, though nothing may be reserved yet.


def reserve_in_code(found: re.Match[str]) -> str:
    if said := re.findall(r"result: '(reserved at \d+)'\Z", found.string):
        return f"said: {said[0]}"
    return code(
        "costs = 0",
        f"for number in {numbers(shown(found, 'question'))}:",
        "    costs += int(quote([number]).split()[-1])",
        "deal = reserve(f'quote of {costs}')",
        "deal",
    )


def pay_in_code(found: re.Match[str]) -> str:
    if said := re.findall(r"result: '(paid \d+)'\Z", found.string):
        return f"said: {said[0]}"
    return code("pay(deal)" if "reserved at" in shown(found, "course") else "pay()")


def name_policy(found: re.Match[str]) -> str:
    said = shown(found, "said")
    for seen, policy in (("it can be paid", "pay"), ("paid", "end"), ("reserved at", "think")):
        if seen in said:
            return policy
    return "reserve"


# AutoML-Agent: what the question calls its columns, and what each plan needs.


def parse_request(found: re.Match[str]) -> str:
    value, columns = numbers(shown(found, "question"))[0], listed(found, "columns")
    target = "price" if "rent is no column" in shown(found, "fault") and "price" in columns else "rent"
    return f"target: {target}\nknown: size\nvalue: {value}"


def can_work(found: re.Match[str]) -> str:
    needs, columns = shown(found, "needs").split(", "), listed(found, "columns")
    return "yes" if all(need in columns for need in needs) and shown(found, "model") else "no"


def fit_plan(found: re.Match[str]) -> str:
    if "result: " in found.string:
        return "note: fitted"
    plan, target, known = (shown(found, field) for field in ("plan", "target", "known"))
    if "line" in plan:
        return code(
            f"xs, ys = [row[{known!r}] for row in train], [row[{target!r}] for row in train]",
            "from statistics import linear_regression",
            "slope, constant = linear_regression(xs, ys)",
        )
    by = "street" if "street" in plan else target
    return code(
        f"groups = {{row[{by!r}] for row in train}}",
        f"constant, slope = sum(row[{target!r}] for row in train) / len(train), 0.0",
    )


CODE: dict[str, Case] = {
    "codeact.yaml": Case(
        [
            ("Write Python", r"\Aquestion: (.*)\Z", loop_over_fruits),
            ("Write Python", r"result: total (\d+)\Z", r"answer: \1"),
        ],
    ),
    "cave_agent.yaml": Case([("Choose the orders", "question: ", narrow_down)]),
    "poact.yaml": Case(
        [
            ("Which steps", "question: ", "reserve, then pay"),
            ("What follows", r"course: .*reserved at", "it can be paid"),
            ("pay(", "question: ", pay_in_code),
            ("reserve(", "question: ", reserve_in_code),
            ("What comes next", "said: ", name_policy),
            ("Say what was paid.", r"course: .*paid (\d+)", r"\1"),
        ],
    ),
    "automl_agent.yaml": Case(
        [
            ("Which column is asked for", "question: ", parse_request),
            ("You prepare data", r"Needs: ([\w, ]+)\.", r"\1"),
            ("You choose models", r"plan: [^\n]*: (.*)\. Needs", r"\1"),
            ("Can the plan work", "plan: ", can_work),
            ("Write Python that fits", "plan: ", fit_plan),
        ],
    ),
}
