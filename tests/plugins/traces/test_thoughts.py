"""What a model thought is no part of what it said: neither of an output, nor of a right answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.traces.samples import Json, chat, imported, langfuse, langsmith, otel_span, otlp, phoenix, run, write

from workbench_traces.read_files import read_turns

TEXT = "<think>\nIs it 7? No.\n</think>\n\n5"


def in_content(content: Any) -> Json:
    made = chat(4, score=1)
    made["messages"][-1] = {"role": "assistant", "content": content}
    return made


def in_parts(*parts: Json) -> Json:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "What?"}]}]
    said = [{"role": "assistant", "parts": list(parts)}]
    words = {"gen_ai__input__messages": json.dumps(asked), "gen_ai__output__messages": json.dumps(said)}
    return otlp(otel_span(0, gen_ai__operation__name="chat", **words))


def in_spans(*types: str) -> Json:
    made = phoenix(0)
    a = {k: v for k, v in made["attributes"].items() if not k.startswith("llm.output_messages")}
    for n, kind in enumerate(types):
        place = f"llm.output_messages.0.message.contents.{n}.message_content"
        a |= {f"{place}.type": kind, f"{place}.text": "5" if kind == "text" else "Is it 7?"}
    return {**made, "attributes": {**a, "llm.output_messages.0.message.role": "assistant"}}


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(in_content(TEXT), id="nu1-text"),
        pytest.param(in_content("Is it 7? No.\n</think>\n\n5"), id="nu1-without-beginning"),
        pytest.param(
            in_content([{"type": "thinking", "thinking": "7?"}, {"type": "text", "text": "5"}]), id="nu1-parts"
        ),
        pytest.param(in_content([{"type": ["x"], "text": "5"}]), id="nu1-odd-type"),
        pytest.param(in_content([{"thought": True, "text": "7?"}, {"text": "5"}]), id="nu1-gemini"),
        pytest.param(
            in_parts({"type": "reasoning", "content": "7?"}, {"type": "text", "content": "5"}), id="nu1-genai"
        ),
        pytest.param(in_spans("reasoning", "text"), id="nu1-openinference"),
        pytest.param({**langfuse(0), "output": {"answer": TEXT}}, id="nu1-langfuse"),
        pytest.param({**langsmith(0)[0], "outputs": {"output": TEXT}}, id="nu1-langsmith"),
    ],
)
def test_nu1_an_output_is_what_the_model_said(record: Json, tmp_path: Path) -> None:
    (turn,) = read_turns([write(tmp_path / "t.jsonl", record)])
    assert turn.output == "5"


def test_nu1_a_right_answer_has_no_thoughts_nor_has_the_chat_before_it(tmp_path: Path) -> None:
    records = []
    for n in range(4):
        made = chat(n, score=1)
        made["messages"][-1]["content"] = f"<think>\nhm\n</think>\n\n{n + 1}"
        more = [{"role": "user", "content": f"And {n} <think>?"}, {"role": "assistant", "content": f"No </think> {n}"}]
        records.append({**made, "messages": made["messages"] + more})
    rows, _ = imported(tmp_path / "out" / "rows.jsonl", write(tmp_path / "t.jsonl", *records))
    assert [row["answer"] for row in rows] == [row["output"] for row in rows] == [" 0", " 1", " 2", " 3"]
    assert rows[0]["history"].endswith("assistant: 1") and rows[0]["input"] == "And 0 <think>?"


def test_nu1_thoughts_without_an_answer_are_no_row(tmp_path: Path) -> None:
    records = [in_content("<think>\nhm"), *(chat(n) for n in range(4))]
    _, said = imported(tmp_path / "out" / "rows.jsonl", write(tmp_path / "t.jsonl", *records))
    assert "1 left out: question or answer missing" in said


def test_nu2_a_folder_is_its_files(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / "in" / str(n)).mkdir(parents=True)
        write(tmp_path / "in" / str(n) / "t.JSONL", chat(n))
    (tmp_path / "in" / "notes.txt").write_text("no traces")
    rows, _ = imported(tmp_path / "out" / "rows.jsonl", tmp_path / "in")
    assert [row["input"] for row in rows] == [f"What is {n} plus one?" for n in range(4)]
    (tmp_path / "bare").mkdir()
    assert "bare contains no .json or .jsonl files" in str(run(tmp_path / "b.jsonl", tmp_path / "bare").exception)


def test_nu3_a_file_of_another_format_is_told_which(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", {"schema_version": "ATIF-v1.7", "agent": {"name": "a"}, "steps": []})
    failed = run(tmp_path / "out" / "rows.jsonl", "--from", "otel", file).exception
    assert "has no attributes" in str(failed) and "It looks like --from atif." in str(failed)
