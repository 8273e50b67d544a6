"""What a scripted model says in each workflow of the gallery: one table a file, so that every way through it is gone.

A table lists (what stands in the system message, a pattern of the other messages, the answer). The first line that fits
answers: a text, in which `\\1` is the pattern's first group, a function of the match, or a list of these, said in turn.
Answers are made of what the node was shown, so a tool, a member or a field that is not there makes the final answer
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.helpers import gallery_facts as facts
from tests.helpers.gallery_attacks import ATTACKED
from tests.helpers.gallery_benchmarks import BENCHMARKS
from tests.helpers.gallery_code import CODE
from tests.helpers.gallery_drawings import DRAWINGS
from tests.helpers.gallery_loops import LOOPS
from tests.helpers.gallery_retrieval import RETRIEVAL
from tests.helpers.gallery_speech import (
    ASKED,
    PLAN,
    RESULT,
    SUM,
    Case,
    Drawn,
    add,
    call,
    code,
    numbers,
    own_rows,
    owner_of,
    steps,
    total,
)
from tests.helpers.gallery_strangers import STRANGERS
from tests.helpers.gallery_thoughts import THOUGHTS
from tests.helpers.gallery_worlds import WORLDS

LABELS = ("billing", "technical", "shipping", "returns", "account")
SORTED = {row["text"]: row["label"] for row in own_rows("../data/tickets")}


def sort_ticket(wrong: int) -> Callable[[re.Match[str]], str]:
    """A juror who is wrong on so many of four tickets."""

    def say(found: re.Match[str]) -> str:
        label = SORTED.get(found[1].strip(), "billing")
        return LABELS[(LABELS.index(label) + (len(found[1]) % 4 < wrong)) % 5]

    return say


def in_fences(program: str) -> str:
    return code(*program.splitlines())


#: Programs as a model might write them: one that cannot be read, one that is wrong, and one that adds.
ADDERS = (
    "def total(question): return [",
    "def total(question): return len(question)",
    "def total(question): return sum(int(number) for number in question.split('+'))",
)


def pick_strategy(found: re.Match[str]) -> str:
    parts = numbers(found[1])
    if len(parts) == 5:
        return "as you like" if parts[1] % 2 else "best_of_n"
    return "tree_of_thought" if len(parts) == 6 else "rebase"


CASES: dict[str, Case] = {
    **CODE,
    **LOOPS,
    **RETRIEVAL,
    **WORLDS,
    **BENCHMARKS,
    **ATTACKED,
    **STRANGERS,
    **DRAWINGS,
    **THOUGHTS,
    "adaptive_rag.yaml": Case(
        [
            ("How many pages", "question: (.*)\\n", facts.how_many_pages),
            ("Answer the question.", "question: (.*)\\n", lambda m: facts.SIMPLE.get(m[1], "unknown")),
            ("Answer by what was found.", "pages: ", facts.answers("pages")),
            ("search(", "question: ", facts.search_on),
        ],
    ),
    "best_route.yaml": Case(
        [
            ("Give the sum.", rf"\A{SUM}\n", lambda m: total(-1 if len(numbers(m[1])) > 2 else 0)(m)),
            ("Add the numbers step by step.", rf"\A{SUM}\n", lambda m: f"a\nanswer: {total()(m)}"),
        ],
    ),
    "captain.yaml": Case(  # a number is left out, until a second look; no expert fits, in the first of two steps
        [
            ("Name the first step", rf"{SUM}", lambda m: steps(m[1])),
            ("Which candidate fits", r"role: adds numbers\n.*\[arithmetician\]", "arithmetician"),
            ("Which candidate fits", r"role: checks\n.*\[checker\]", "checker"),
            ("Which candidate fits", r"(?s)role: [\w ]*prose\n.*\[writer\]", "[writer]"),
            ("Which candidate fits", "role", "mathematician"),
            ("Write an expert", "role: (.*)", lambda m: "You carry." if "mental" in m[1] else "You listen."),
            ("Do your part.", r"task: Add ([\d +]+) \+ \d+\.\nresult: none yet\nerrors: none yet\nsaid: \[\]\Z", add),
            ("Do your part.", r"task: Add ([\d +]+)\.\nresult: \d+\nerrors: one is left out\nsaid: \[\]\Z", add),
            ("Do your part.", r"(?s)call: .*(?:result: (\d+)|error)", lambda m: f"message: it is {m[1]}\ndone: no"),
            (
                "in a line",
                r"told: checks results[^\n]*\n.*\ntask: Add [^\n]*\nresult: none yet",
                "message: I count more\ndone: yes",
            ),
            ("in a line", r"You carry\.\ntask: Add ([\d +]+)\.", lambda m: f"message: it is {total()(m)}\ndone: no"),
            ("in a line", r"task: Check (\w+)\.", "message: it is \\1 indeed\ndone: yes"),
            ("Do your part.", "said: ", "message: that is all\ndone: yes"),
            ("in a line", "told: ", "message: well said\ndone: no"),
            (
                "What did the team find",
                r"it is (\d+).*I count more",
                "result: \\1\nerrors: one is left out\ncheck: yes",
            ),
            (
                "What did the team find",
                "said: (.*)",
                lambda m: f"result: {(*numbers(m[1]), 'nothing')[0]}\nerrors: none\ncheck: no",
            ),
            (
                "Give the answer so far",
                r"(?s)question: \d*[02468] .*result: (\w+)\n",
                "answer: \\1\ntask: none\nroles: []",
            ),
            ("Give the answer so far", r"reports: \[\]\nresult: (\w+)", "answer: ?\ntask: Check \\1.\nroles: [checks]"),
            ("Give the answer so far", r'reports: \["(\w+)"\]\nresult: \1\n', "answer: \\1\ntask: none\nroles: []"),
        ],
    ),
    "chain.yaml": Case(
        [
            ("Name the person", r"animal of (\w+)\?", r"\1"),
            ("Which animal", r"\nsubject: (\w+)\nanimal:", owner_of),
            ("Which color", r"(?s)the (\w+) is (\w+)\b.*\nanimal: \1\n", r"\2"),
        ],
    ),
    "contest.yaml": Case(  # two of three are mostly wrong, and both say the same
        [
            ("by topic", "text: (.*)", sort_ticket(3)),
            ("still needs fixed", "text: (.*)", sort_ticket(3)),
            ("needs help now", "text: (.*)", sort_ticket(0)),
        ]
    ),
    "debate.yaml": Case(  # the first round has no majority; in the second, all adopt the right answer
        [
            ("left to right", ASKED, total(-1)),
            ("large numbers", ASKED, total()),
            ("every step", ASKED, total(2)),
            *[
                (role, r"answers_of_others: - \d+\n- (\d+)\n- \d+\n", r"\1")
                for role in ("left to right", "large numbers", "every step")
            ],
        ],
    ),
    "dylan.yaml": Case(  # two rounds without consensus, then a ranker keeps two members, who answer in the third
        [
            *[
                (role, ASKED, f"perhaps {n}")
                for n, role in enumerate(("careful", "quick", "doubt everything", "a poet"))
            ],
            *[
                (role, r"others: - perhaps 0\n- perhaps 1\n- perhaps 2\n- perhaps 3\n", f"surely {n}")
                for n, role in enumerate(("careful", "quick", "doubt everything", "a poet"))
            ],
            ("the numbers of the 2 best ones", r"1\. surely 0\n2\. surely 1\n3\. surely 2\n4\. surely 3\Z", "2, 3"),
            ("quick", rf"{SUM}\nanswers_of_others: - surely", total()),
            ("doubt everything", rf"{SUM}\nanswers_of_others: - surely", total()),
        ],
    ),
    "ecoact.yaml": Case(
        [
            *[
                ("Names: ", rf"\Aquestion: {start}[^\n]*\Z", call("register", tool=tool))
                for start, tool in ((r"\d", "add"), (r"[^\n]*(?:\.txt|files)", "shell"), ("", "search"))
            ],
            ("Names: ", rf"(?s)\A{SUM}\n.*registered\. - add\(.*: Adds numbers\.\Z", add),
            ("Names: ", rf"(?s)\A{SUM}\n.*\nresult: (\d+)\Z", r"answer: \2"),
            ("Names: ", r"registered\. - shell\([^\n]*\Z", lambda m: call("shell", command=facts.mend_command(m))),
            (
                "Names: ",
                r"(?s)question: [^\n]*(?:\.txt|files).*result: .*\Z",
                lambda m: facts.submit_result(m).replace("submit", "answer:"),
            ),
            ("Names: ", "registered|result: ", facts.search_on),
            ("with the tool that can", "", "answer: too much to read"),
        ],
    ),
    "forge.yaml": Case([("", "", Drawn(*map(in_fences, ADDERS)))]),
    "graph_of_thoughts.yaml": Case(  # four numbers at most are added right
        [("Add the numbers.", ASKED, lambda m: total(-1 if len(numbers(m[1])) > 4 else 0)(m))]
    ),
    "jury.yaml": Case(  # the first is mostly wrong, the others on other rows
        [
            ("by its main problem", "text: (.*)", sort_ticket(3)),
            ("still needs fixed", "text: (.*)", sort_ticket(0)),
            ("needs help now", "text: (.*)", sort_ticket(0)),
        ]
    ),
    "malt.yaml": Case(
        [
            ("Add the numbers.", ASKED, total(-1)),
            ("Is the draft right?", rf"{SUM}\ndraft: \d+\n", lambda m: f"no, it is {total()(m)}"),
            ("Give the right answer.", r"draft: \d+\nverdict: no, it is (\d+)\n", r"\1"),
        ],
    ),
    "mixture_of_agents.yaml": Case(
        [
            ("Add the numbers.", ASKED, total(-1)),
            ("step by step", ASKED, total()),
            ("Sum up", ASKED, total(1)),
            ("Answers of others may be wrong.", r"first_answer: \d+\nsecond_answer: (\d+)\nthird_answer: \d+\n", r"\1"),
        ],
    ),
    "plan_and_execute.yaml": Case(
        [
            ("Make a plan", rf"\A{SUM}\nplan:", r"call add with \1"),
            ("Carry out the plan.", r"plan: call add with ([\d +]+)\Z", add),
            ("Carry out the plan.", RESULT, r"findings: \1 in all"),
            ("Add the numbers.", r"findings: (\d+) in all\n", r"\1"),
        ],
    ),
    "plangen.yaml": Case(  # a strategy for each length; where the selection cannot be read, the usual one
        [
            ("What must a right answer meet?", ASKED, r"the sum of \1"),
            ("How should plans", r"constraints: the sum of ([\d +]+)\n", pick_strategy),
            ("Make a plan that meets", "constraints: the sum of", "a draft"),
            (PLAN, r"constraints: the sum of ([\d +]+)\nplan: add \1\n", "0.9"),
            (PLAN, "plan: begin with", "0.5"),
            (PLAN, "plan: ", "0.2"),
            (
                "Make a whole plan",
                rf"{SUM}\nconstraints: the sum",
                Drawn("guess 1", lambda m: f"add {m[1]}" if len(numbers(m[1])) < 6 else "guess 2", "guess 3"),
            ),
            ("Write the first step", r"question: (\d+).*\nconstraints: the sum", Drawn("guess", r"begin with \1")),
            (
                "with the steps that are missing",
                rf"{SUM}\nconstraints: .*\nplan: begin with \d+\n",
                Drawn("guess", r"add \1"),
            ),
            (
                "An earlier answer was criticised",
                rf"{SUM}\n(?s:.*)earlier_answer: guess 4\ncriticism: The score is 0\.20",
                r"add \1",
            ),
            ("An earlier answer was criticised", r"earlier_answer: (add .*)\ncriticism: The score is 0\.90", r"\1"),
            ("Make a plan that can be mended", rf"{SUM}\nconstraints: the sum", "guess 4"),
            ("Add the numbers.", r"plan: add ([\d +]+)\n", total()),
            ("", "", "guess"),
        ],
        wrong=["select"],
    ),
    "rci.yaml": Case(  # the critic finds a fault in three drafts of four
        [
            (
                "Review the answer",
                rf"{SUM}\n\nThe answer:\n(\d+)\Z",
                lambda m: "none" if m[2] == total()(m) else f"one too few for {m[1]}",
            ),
            (
                "An earlier answer was criticised.",
                r"earlier_answer: \d+\ncriticism: one too few for ([\d +]+)\n",
                total(),
            ),
            ("Add the numbers.", ASKED, lambda m: total(-1 if numbers(m[1])[0] % 4 else 0)(m)),
        ],
    ),
    "react.yaml": Case(
        [
            ('- add({"numbers": ["integer"]}): Adds numbers.', rf"\A{SUM}\Z", add),
            ("with the tool", RESULT, r"answer: \1"),
        ],
    ),
    "small_agent.yaml": Case(
        [
            ("Think step by step.", rf"\A{SUM}\Z", "The numbers must be added.\n\nanswer: 1"),
            ("with the tool", RESULT, r"answer: \1"),
            # Of three actions one fails and two agree.
            (
                "with the tool",
                rf"\A{SUM}\nThought: The numbers must be added.\n\n\Z",
                Drawn(call("add", numbers=["x"]), add, add),
            ),
            ("with the tool", "", "answer: I do not know"),
        ],
    ),
    "self_consistency.yaml": Case(
        [
            (
                "Add the numbers.",
                rf"\A{SUM}\n",
                [
                    "a\nanswer: 1",
                    lambda m: f"b\nanswer: {total()(m)}",
                    "c\nanswer: 2",
                    lambda m: f"d\nanswer: {total()(m)}",
                    "e\nanswer: 3",
                ],
            )
        ],
    ),
    "selforg.yaml": Case(  # three answers; the others hear the one that sorts first
        [
            ("careful", ASKED, total(3)),
            ("quick", ASKED, total()),
            ("doubt", ASKED, total(2)),
            ("careful", r"others: - (\d+)\n- \1\n", r"\1"),
            ("doubt", r"others: - (\d+)\n", r"\1"),
        ],
    ),
    "stateflow_bash.yaml": Case(
        [
            ("Write a command:", "question: ", facts.run_command),
            ("The last command failed.", "No such file", facts.mend_command),
            ("If you know the answer", "result: ", facts.submit_result),
            ("Write the answer and nothing else.", r"\nsubmit (.*)\nresult: submitted\Z", r"\1"),
            ("", "", "unknown"),
        ],
    ),
    "formal_specification.yaml": Case(  # a model that would rather pay at once than reserve, and than ask for a price
        [
            ("Book", r"result: paid (\d+)\Z", r"answer: \1"),
            ("cancel(", r"(?s)question: Cancel.*(reserved at \d+)\Z", lambda m: call("cancel", reservation=m[1])),
            ("pay(", r"(reserved at \d+)\Z", lambda m: call("pay", reservation=m[1])),
            ("pay(", r"cancelled\Z", call("pay", reservation="it all the same")),
            ("Book", r"cancelled\Z", "answer: nothing is paid"),
            ("pay(", r"\Aquestion: .*\Z", call("pay")),
            ("reserve(", r"(quote of \d+)\Z", lambda m: call("reserve", quote=m[1])),
            ("reserve(", r"\Aquestion: .*\Z", call("reserve", quote="a good price")),
            ("quote(", "question: (.*)", lambda m: call("quote", numbers=numbers(m[1]))),
            ("Book", "", "answer: I do not know"),
        ],
    ),
    "step_back.yaml": Case(
        [
            ("What general rule", ASKED, "a sum takes all numbers"),
            ("Answer by the rule.", rf"{SUM}\nprinciple: a sum takes all numbers\n", total()),
        ],
    ),
    "tree_of_thoughts.yaml": Case(
        [
            (
                "Add the first two",
                r"question: (\d+ \+ \d+) ",
                ["none", lambda m: f"so far {total()(m)}", "none, either"],
            ),
            ("the number of the best answer", r'(\d)\. \{"thought": "so far', r"\1"),
            (
                "Add the rest.",
                r"question: \d+ \+ \d+ \+ ([\d +]+)\nthought: (so far \d+)\n",
                ["none", "none, either", lambda m: str(sum(numbers(m[1] + m[2])))],
            ),
            ("the number of the best answer", r'thought: so far(?s:.*)\n(\d)\. \{"answer": "\d+"\}', r"\1"),
        ],
    ),
}
