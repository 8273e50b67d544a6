"""Siblings of the inputs that users reported (test_parse.py): other models' habits, other languages, other forms.

Each was written down before it was read. A refusal is right where a reader of the answer could not be certain, either.
"""

from __future__ import annotations

from typing import Any

import pytest

from workbench.errors import NodeError
from workbench.lm import split_thoughts
from workbench.workflow import parse_signature
from workbench_kit.answers import parse, read_grade, read_text

CASE, LETTERS = "t -> label: Literal['billing', 'technical']", "q -> answer: Literal['A', 'B', 'C', 'D']"
SENTIMENT, STARS = "t -> label: Literal['positive', 'negative']", "t -> label: Literal['1', '2', '3', '4', '5']"
TRUTH, FLOAT, INT, TAGS = "t -> a: bool", "t -> answer: float", "t -> answer: int", "t -> tags: list[str]"
PERSON, COUNTS, TWO = "t -> o: {name: str, age: Optional[int]}", "t -> d: dict[str, int]", "t -> answer, sure: float"
ANNA = {"name": "A", "age": 3}

#: Section of the report, signature, answer, value of the last output; None: refused.
READ: list[tuple[str, str, str, Any]] = [
    ("A", CASE, "analysisIs it billing or technical?assistantfinaltechnical", "technical"),
    ("A", CASE, "technical<|im_end|>\n<|im_start|>user\nbilling", "technical"),
    ("A", CASE, "technical<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nbilling", "technical"),
    ("A", "q -> a", "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant", None),
    ("A", CASE, "<antThinking>billing</antThinking>technical", "technical"),
    ("A", CASE, "<scratchpad>\nbilling?\n</scratchpad>\ntechnical", "technical"),
    ("A", CASE, "<reflection>billing</reflection>\n<output>technical</output>", "technical"),
    ("L", LETTERS, "A. Paris\nB. London\nC. Rome\nD. Berlin", None),
    ("L", LETTERS, "A and C", None),
    ("L", LETTERS, "Answer: A, C", None),
    ("L", LETTERS, "Answer: A/C", None),
    ("L", LETTERS, "The answer is either A or B.", None),
    ("L", LETTERS, "Vitamin C", None),
    ("L", LETTERS, "The patient has hepatitis B.", None),
    ("L", LETTERS, "Plan B", None),
    ("L", LETTERS, "The best option is B, not A.", "B"),
    ("L", LETTERS, "B is the correct answer.", "B"),
    ("L", LETTERS, "I'd say B, though A is close.", "B"),
    ("L", LETTERS, "The answer isn't A but B.", "B"),
    ("L", LETTERS, "The answer is $\\mathbf{B}$", "B"),
    ("L", LETTERS, "$B$", "B"),
    ("L", LETTERS, "答案是C。", "C"),
    ("L", LETTERS, "正解はCです。", "C"),
    ("L", LETTERS, "정답은 C입니다.", "C"),
    ("L", LETTERS, "La respuesta correcta es C, no A.", "C"),
    ("L", CASE, "billing: 10%, technical: 90%", None),
    ("L", CASE, "billing (0.1), technical (0.9)", None),
    ("L", CASE, "billing: no\ntechnical: yes", None),
    ("L", CASE, "There's nothing about billing here, so technical", "technical"),
    ("L", CASE, "It was misclassified as billing; it is technical.", "technical"),
    ("L", CASE, "Não é billing, é technical", "technical"),
    ("L", CASE, "Non è billing, è technical", "technical"),
    ("L", CASE, "不是billing，而是technical。", "technical"),
    ("L", CASE, "billingではなくtechnicalです", "technical"),
    ("L", CASE, "billing이 아니라 technical", "technical"),
    ("L", SENTIMENT, "The overall sentiment of the review is positive, despite some negative remarks.", "positive"),
    ("L", "t -> label: Literal['긍정', '부정']", "이 리뷰는 긍정입니다", "긍정"),
    ("L", "t -> label: Literal['ポジティブ', 'ネガティブ']", "これはネガティブではなくポジティブです", "ポジティブ"),
    ("L", STARS, "On a scale of 1 to 5, I give it a 4.", "4"),
    ("L", TRUTH, "不，这不对", False),
    ("L", TRUTH, "はい、そうです", True),
    ("L", TRUTH, "Sim", True),
    ("L", TRUTH, "Falsch", False),
    ("L", TRUTH, "да", True),
    ("L", TRUTH, "아니오", False),
    ("L", TRUTH, '{"result": false}', False),
    ("L", TWO, "answer: Paris, sure: 0.9", 0.9),
    ("L", TWO, "Answer: Paris (sure: 0.9)", 0.9),
    ("N", FLOAT, "1 000,5", 1000.5),
    ("N", FLOAT, "1 234 567", 1234567.0),
    ("N", FLOAT, "–3.5", -3.5),
    ("N", FLOAT, "3.5 \\times 10^{-4}", 0.00035),
    ("N", FLOAT, "2,3 Millionen", 2300000.0),
    ("N", FLOAT, "1.5 bn", 1500000000.0),
    ("N", FLOAT, "5 lakh", 500000.0),
    ("N", FLOAT, "1.2亿", 120000000.0),
    ("N", FLOAT, "3 ± 0.1", 3.0),
    ("N", INT, "minus 7", -7),
    ("N", INT, "1_000", 1000),
    ("N", INT, "15 in 2021", 15),
    ("N", INT, "The answer is not 12 but 14.", 14),
    ("N", INT, "La réponse est 42 en 3 étapes.", 42),
    ("N", INT, "答案是42。", 42),
    ("N", INT, "10:30", None),
    ("N", INT, "2024-05-01", None),
    ("S", TAGS, "[a, b]", ["a", "b"]),
    ("S", TAGS, '("a", "b")', ["a", "b"]),
    ("S", TAGS, "a、b", ["a", "b"]),
    ("S", TAGS, "```\na\nb\n```", ["a", "b"]),
    ("S", "t -> n: int", "```\n" * 3000, None),
    ("S", TAGS, '{"items": ["a", "b"]}', ["a", "b"]),
    ("S", TAGS, "“a”, “b”", ["a", "b"]),
    ("S", TAGS, "1.a\n2.b", ["a", "b"]),
    ("S", TAGS, "Here are the tags:\n\na, b", ["a", "b"]),
    ("S", TAGS, '- "a"\n- "b"', ["a", "b"]),
    ("S", TAGS, "[ ] a\n[x] b", ["[ ] a", "[x] b"]),
    ("S", TAGS, "No tags.", []),
    ("S", "t -> n: list[int]", "The numbers are 1, 2 and 3.", [1, 2, 3]),
    ("S", "t -> n: list[int]", "[1 2 3]", [1, 2, 3]),
    ("S", COUNTS, "{a: 1, b: 2}", {"a": 1, "b": 2}),
    ("S", COUNTS, '{"a": 1, // one\n "b": +2}', {"a": 1, "b": 2}),
    ("S", COUNTS, '"{\\"a\\": 1}"', {"a": 1}),
    ("S", COUNTS, '{\\"a\\": 1}', {"a": 1}),
    ("S", PERSON, '{name: "A", age: 3}', ANNA),
    ("S", PERSON, '{"Name": "A", "Age": 3}', ANNA),
    ("S", PERSON, '{"name": "The "big" one", "age": 3}', {"name": 'The "big" one', "age": 3}),
    ("S", PERSON, '{"person": {"name": "A", "age": 3}}', ANNA),
    ("S", PERSON, "name = A, age = 3", ANNA),
    ("S", PERSON, "{'name': 'O'Brien', 'age': 3}", None),
    ("S", PERSON, '{"name": "A", "age": "three"}', None),
    ("L", LETTERS, "I give it a B.", "B"),
    ("L", LETTERS, "A is better than B", "A"),
    ("L", LETTERS, "Response B is better.", "B"),
    ("L", LETTERS, "D - none of these", "D"),
    ("L", LETTERS, "not option b but option c", "C"),
    ("L", LETTERS, "an option a user may choose", None),
    ("L", LETTERS, "A - Paris\nB - Rome", None),
    ("N", FLOAT, "200 divided by 4 is 50", 50.0),
    ("N", FLOAT, "15% of 200 is 30", 30.0),
    ("N", FLOAT, "15% of 200", None),
    ("N", FLOAT, "p < 0.05", 0.05),
    ("N", FLOAT, "On May 5 and 6, 42 people came.", 42.0),
    ("N", FLOAT, "0.1 < x < 0.9", None),
    ("N", FLOAT, "<b>5</b>", 5.0),
    ("N", FLOAT, "so x >= 94", 94.0),
    ("N", FLOAT, "0.5, 95% CI [0.4, 0.6]", 0.5),
    ("N", FLOAT, "12 balls: 3 red, 4 blue and 5 green", 12.0),
    ("N", FLOAT, "3 red, 4 blue and 5 green balls", None),
    ("N", FLOAT, "3 apples, 2 pears and 1 plum make 6 pieces of fruit", 6.0),
    ("N", FLOAT, "cannot be determined from the 3 facts", None),
    ("N", FLOAT, "It cannot be determined exactly. Answer: 12", 12.0),
    ("N", FLOAT, "0.8/1.0", 0.8),
    ("S", TAGS, "1. red 2. green 3. blue", ["red", "green", "blue"]),
    ("S", COUNTS, "a -> 1\nb -> 2", {"a": 1, "b": 2}),
]


def test_a_sibling_is_read_as_it_is_meant(subtests: pytest.Subtests) -> None:
    for section, signature, answer, value in READ:
        with subtests.test(section=section):
            said, fields = split_thoughts(answer)[1], parse_signature(signature)
            if value is None and fields.outputs[0].type is str:
                assert said == answer, section
            elif value is None:
                with pytest.raises(NodeError) as caught:
                    parse(fields, said)
                assert caught.value.kind == "unparsed", section
            else:
                found = parse(fields, said)[0][fields.outputs[-1].name]
                assert (found, type(found)) == (value, type(value)), section


@pytest.mark.parametrize("answer", ["answer: Paris, sure: 0.9", "Answer: Paris; sure = 0.9"])
def test_a_label_within_a_line_ends_the_field_before_it(answer: str) -> None:
    assert parse(parse_signature(TWO), answer)[0] == {"answer": "Paris", "sure": 0.9}


def test_a_sibling_of_a_grade_is_read(subtests: pytest.Subtests) -> None:
    for answer, share in [
        ("8/10", 0.8),
        ("I'd give it 8 out of 10.", 0.8),
        ("Rating: [[8]]", 0.8),
        ("<score>8</score>", 0.8),
        ("### Score\n8", 0.8),
        ("score (0-10): 8", 0.8),
        ("score: 85%", 0.85),
        ("评分：8", 0.8),
        ("Score: 8 (the answer had a score of 3)", 0.8),
        ("score: 8\n\nA score of 10 would need more detail.", 0.8),
        ("Total score: 8\nClarity score: 3", 0.8),
        ('{"clarity_score": 3, "overall_score": 8}', 0.8),
        ("Score: 4 (on a scale from 0 to 5)", 0.8),
        ("8", 0.8),
        ("7.5", 0.75),
        ("[RESULT] 8", 0.8),
        ("8/10 because of 3/4 facts", 0.8),
        ("2/3 facts are right. 8/10", 0.8),
        ("Score - 8", 0.8),
        ("Score: 3 (out of 5)", 0.6),
        ("Puntuación: 8", 0.8),
        ("점수: 8", 0.8),
        ("Оценка: 8/10", 0.8),
        ("8/10 - it would be 10/10 with sources", 0.8),
        ("8/10. To get 10/10, add sources.", 0.8),
        ("This would be a 9/10", 0.9),
        ("Accuracy: 9\nStyle: 6\nOverall: 8", 0.8),
        ("score: 8 to 9", None),
        ("score: 8-9", None),
        ("score: eight", None),
    ]:
        with subtests.test(answer=answer):
            assert (read_grade(answer, 10) or (None,))[0] == share


def test_a_sibling_of_a_call_is_a_call(subtests: pytest.Subtests) -> None:
    for answer in [
        '[TOOL_CALLS]search[CALL_ID]abc123456[ARGS]{"query": "x"}',
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">x'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "x"}<|call|>',
        'assistantcommentary to=functions.search json{"query": "x"}',
        '<action>search(query="x")</action>',
        '{"tool_uses": [{"recipient_name": "functions.search", "parameters": {"query": "x"}}]}',
        '{"tool_name": "search", "tool_args": {"query": "x"}}',
        '{"functionCall": {"name": "search", "args": {"query": "x"}}}',
        '{"toolUse": {"name": "search", "input": {"query": "x"}}}',
        'call: {tool: "search", arguments: {query: "x"}}',
        "<start_function_call>call:search{query:<escape>x<escape>}<end_function_call>",
        '<|tool_call>call:search{query:<|"|>x<|"|>}<tool_call|>',
        '<|tool_call_start|>[search(query="x")]<|tool_call_end|>',
        '<TOOLCALL>[{"name": "search", "arguments": {"query": "x"}}]</TOOLCALL>',
        '<longcat_tool_call>{"name": "search", "arguments": {"query": "x"}}</longcat_tool_call>',
        '<|tool_calls|>[{"name": "search", "arguments": {"query": "x"}}]',
        '<functioncall> {"name": "search", "arguments": \'{"query": "x"}\'}',
        '✿FUNCTION✿: search\n✿ARGS✿: {"query": "x"}\n✿RESULT✿',
        'Tool: search\nArguments: {"query": "x"}',
        'Tool call: search\nArguments: {"query": "x"}',
        '<function name="search">{"query": "x"}</function>',
        '<|action_start|><|plugin|>{"name": "search", "parameters": {"query": "x"}}<|action_end|>',
        '<tools>{"name": "search", "arguments": {"query": "x"}}</tools>',
        '{"search": {"query": "x"}}',
        '{"command": "search", "params": {"query": "x"}}',
        '{"name": "search", "query": "x"}',
        'Action 1: search({"query": "x"})',
        'to=functions.search code<|message|>{"query": "x"}',
    ]:
        with subtests.test(answer=answer):
            tools = {"search": ["query", "k"], "now": []}
            assert list(read_text(answer, tools, ["answer"]).calls) == [{"name": "search", "arguments": {"query": "x"}}]
