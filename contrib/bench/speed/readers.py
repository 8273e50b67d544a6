"""How long the readers of answers hold the event loop: CPU for 200 kB of answer, and how it grows to 400 kB.

    python contrib/bench/speed/readers.py [READER ...]

Each reader reads each text five times, the best counts. Target: every one under 20 ms. A growth of 2 is linear; it is
shown where the time is long enough to be measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from workbench.errors import NodeError
from workbench.lm import Request, Response, split_thoughts
from workbench.workflow import Signature, parse_signature
from workbench_kit import answers
from workbench_kit.answers import answer_text, load_loose, read_text
from workbench_kit.lms.native_calls import read_native_calls
from workbench_kit.prompting import read_prompt

SIZE = 200_000
TARGET = 0.020
TOOLS = {"look": ["where"], "python": ["code"], "pay": ["to", "amount"]}
PROSE = "The ticket speaks of an invoice, and it was not paid; so 3 of 4 people, e.g. Ann, ask: is it right? "


def _fill(unit: str, begin: str = "", end: str = "") -> Callable[[int], str]:
    return lambda size: begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


#: Texts of a size, by what they are made of.
TEXTS: dict[str, Callable[[int], str]] = {
    "prose": _fill(PROSE),
    "prose in lines": _fill(PROSE + "\n"),
    "prose, label at the end": _fill(PROSE, end="\nlabel: b"),
    "many conclusions": _fill("So the answer is a or b. "),
    "labels on each line": _fill("label: b\n"),
    "values everywhere": _fill("a, b, yes or no, "),
    "object of one text": _fill("long ", '{"label": "', '"}'),
    "object of many keys": lambda size: json.dumps({f"key{n}": n for n in range(size // 16)}),
    "list of 20,000 items": lambda size: json.dumps([f"item{n % 10}" for n in range(size // 10)]),
    "list with single quotes": lambda size: str([f"item{n % 10}" for n in range(size // 10)]),
    "list with a comma too many": _fill('"item12", ', "[", "]"),
    "list in lines": _fill("- an item\n"),
    "list with commas": _fill("item, "),
    "list of numbers": _fill("1234, "),
    "numbers": _fill("12,345.67 and 1 234,5 "),
    "one number": _fill("7"),
    "unclosed braces": _fill("{ not closed, a: b  "),
    "braces alone": _fill("{"),
    "unclosed objects": _fill('{"a": [1, 2  '),
    "open lists": _fill("1, ", "[" * 49),
    "small objects": _fill('{"a": 1} and '),
    "calls": _fill('call: {"tool": "x"}\n'),
    "known calls": _fill('call: look(where="here")\n'),
    "bad calls": _fill("call: {tool look}\n"),
    "tags of calls": _fill('<tool_call>{"name": "x"}'),
    "call with a long text": _fill("x = 1\\n", 'call: {"tool": "python", "arguments": {"code": "', '"}}'),
    "call as long Python": _fill("x = 1\\n", "python('", "')"),
    "Python in a fence": _fill("print(1)\n", "```python\n", "\n```"),
    "fences": _fill("```json\n{x}\n```\n"),
    "elements": _fill("<function=look><parameter=where>x</parameter></function>"),
    "thoughts": _fill("Is it a, or b? Hm. ", "<think>", "</think>b"),
    "thoughts that do not end": _fill("Is it a, or b? Hm. ", "<think>"),
    "many thoughts": _fill("<think>a</think>\n"),
    "Markdown table": _fill("| a | **b** | 3 |\n|---|---|---|\n"),
    "Markdown headings": _fill("## Label\n\nb\n\n"),
    "one line without blanks": _fill("abcdefghij"),
    "marks": _fill("*_-#>`"),
    "blanks": _fill(" \n"),
    "Chinese": _fill("这是正面的评论，不是负面的。"),
    "Chinese, no stops": _fill("这个答案是一个很长的评论"),
    "Thai": _fill("นี่คือคำตอบที่ยาวมาก"),
    "quotes": _fill('it\'s "so", '),
    "boxes": _fill("\\boxed{a} "),
    "open boxes": _fill("\\boxed{"),
    "grades": _fill("score: 3/10\n"),
}


def _outputs(text: str) -> Callable[[str], Any]:
    signature: Signature = parse_signature(f"text -> {text}")
    return lambda said: answers.parse(signature, said)


def _native(text: str) -> Any:
    tools = tuple({"type": "function", "function": {"name": name}} for name in TOOLS)
    return read_native_calls(Response(text, "stop"), Request(({"role": "user", "content": ""},), tools=tools))


READERS: dict[str, Callable[[str], Any]] = {
    **{
        kind: _outputs(f"label: {kind}")
        for kind in (
            "str",
            "int",
            "float",
            "bool",
            "Literal['a', 'b']",
            "Literal['1', '2', '3']",
            "Literal['正面', '负面']",
            "Optional[int]",
            "int | str",
            "list[str]",
            "list[int]",
            "dict[str, int]",
            "{name: str, age: Optional[int]}",
        )
    },
    "two outputs": _outputs("label, other: float"),
    "calls": lambda text: read_text(text, TOOLS, ["label"]),
    "calls of a cut answer": lambda text: read_text(text, TOOLS, ["label"], cut=True),
    "native calls": _native,
    "what is said": lambda text: answer_text(text, ["label"]),
    "grade": lambda text: answers.read_grade(text, 10),
    "number": answers.read_number,
    "objects": lambda text: [*answers.read_objects(text)],
    "loose JSON": load_loose,
    "code": answers.find_code,
    "thoughts": split_thoughts,
    "prompt": read_prompt,
}


def seconds(read: Callable[[str], Any], text: str, times: int = 5) -> float:
    """CPU of the quickest of some readings."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        with suppress(NodeError):
            read(text)
        taken.append(time.process_time() - begun)
        if taken[-1] > 1:
            break
    return min(taken)


def main(names: list[str]) -> None:
    late = 0
    for name in names or READERS:
        found = sorted(
            ((seconds(READERS[name], make(SIZE)), made) for made, make in TEXTS.items()), key=lambda one: -one[0]
        )
        late += sum(taken > TARGET for taken, _ in found)
        shown = []
        for taken, made in found[:5]:
            growth = f" (x{seconds(READERS[name], TEXTS[made](2 * SIZE)) / taken:.1f})" if taken > 0.002 else ""
            shown.append(f"{made} {taken * 1000:.1f}{growth}")
        print(f"{name:32} {'; '.join(shown)}")
    print(f"{late} over {TARGET * 1000:.0f} ms, of {len(names or READERS) * len(TEXTS)}")


if __name__ == "__main__":
    main(sys.argv[1:])
