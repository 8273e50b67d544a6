"""An agent that talks with a simulated user: who knows what, who pays, and what training learns of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_node

from workbench.base.concurrency import run_in_loop
from workbench.errors import SpecError
from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun
from workbench_training.rollouts.token_rows import build_rows

NODE = {
    "agent": "wish -> city",
    "user": {"knows": ["home"], "instructions": "You are in a hurry."},
    "max_steps": 4,
    "max_tokens": 50,
}
ROW = {"wish": "Book me a flight home.", "home": "Oslo"}


def as_tokens(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def spoken(request: Request, text: str) -> Response:
    """An answer with token ids that begin with all that was said before, as a policy's do."""
    prompt = "".join(f"<{m['role']}>{m['content']}" for m in request.messages) + "<assistant>"
    return Response(
        text,
        "stop",
        len(prompt),
        len(text),
        0.0,
        prompt_ids=as_tokens(prompt),
        token_ids=as_tokens(text),
        logprobs=(-0.5,) * len(text),
    )


def talk(folder: Path, say: Callable[[Request], Any], node: dict[str, Any] = NODE) -> tuple[ExampleRun, Script, Ledger]:
    """The outcome of the agent on the row, with models for the task and for the user."""
    script = Script(say)

    async def main() -> tuple[ExampleRun, Ledger]:
        store = Store(folder / "run.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        runtime = Runtime(ledger, lm_spec("openai/agent"), {"user": lm_spec("openai/user")}, script)
        outcome = await Program(make_workflow({"n": node}, folder), runtime).run(Example("r", ROW))
        await runtime.aclose()
        store.close()
        return outcome, ledger

    outcome, ledger = run_in_loop(main())
    return outcome, script, ledger


def plays_user(request: Request) -> bool:
    return str(request.messages[0]["content"]).startswith("You play a user")


def conversation(request: Request) -> Response:
    last = str(request.messages[-1]["content"])
    if plays_user(request):
        return spoken(request, "I live in Oslo." if "Where" in last else "Thanks. DONE")
    if "Oslo" in last:
        return spoken(request, "say: Oslo it is.")
    return spoken(request, "city: Oslo" if "Thanks" in last else "say: Where do you live?")


def test_the_agent_learns_from_the_user_what_only_the_user_knows(tmp_path: Path) -> None:
    outcome, script, ledger = talk(tmp_path, conversation)
    assert outcome.prediction == {"city": "Oslo"} and outcome.failure is None
    agents = [r for r in script.requests if not plays_user(r)]
    users = [r for r in script.requests if plays_user(r)]
    assert (len(agents), len(users)) == (3, 2)
    assert "Oslo" not in str(agents[0].messages), "what only the user knows"
    assert "home: Oslo" in users[0].messages[0]["content"] and "in a hurry" in users[0].messages[0]["content"]
    assert [m["role"] for m in users[1].messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert users[1].messages[2]["content"] == "wish: Book me a flight home."
    assert "DONE" not in str(agents[-1].messages[-1]) and "has ended the conversation" in str(agents[-1].messages[-1])
    assert ledger.by_role["user"].calls == 2 and ledger.by_role["task"].calls == 3
    assert [t["said"] for t in outcome.trace.spans[0].notes["user"]] == ["I live in Oslo.", "Thanks. DONE"]


def test_what_the_user_says_is_masked_and_its_calls_are_nobodys_to_learn(tmp_path: Path) -> None:
    outcome, _, _ = talk(tmp_path, conversation)
    (row,) = build_rows(outcome.trace.rollout, reward=1.0, task="r", rollout=0, version=0)
    learned = "".join(chr(t) for t, m in zip(row.token_ids, row.mask, strict=True) if m)
    shown = "".join(chr(t) for t, m in zip(row.token_ids, row.mask, strict=True) if not m)
    assert learned == "say: Where do you live?say: Oslo it is.city: Oslo"
    assert "I live in Oslo." in shown and "Thanks." in shown


def test_a_talk_without_end_ends_and_never_costs_more_than_was_said(tmp_path: Path) -> None:
    outcome, script, _ = talk(
        tmp_path, lambda request: "Hm." if plays_user(request) else f"say: again {len(request.messages)}"
    )
    assert outcome.failure == "steps" and len(script.requests) == 8
    assert make_workflow({"n": NODE}, tmp_path).enabled_nodes["n"].max_calls == 8


def test_what_the_user_knows_comes_from_the_row_and_a_model_must_play_it(tmp_path: Path) -> None:
    assert make_workflow({"n": NODE}, tmp_path).enabled_nodes["n"].inputs == ("wish", "home")
    with pytest.raises(SpecError, match=r"(?s)needs a model that plays the user.*roles: \{user:"):
        run_node(NODE, ROW, tmp_path, lambda request: "say: hello")
    outcome, _, _ = talk(tmp_path, lambda r: Response("", "refusal", 1, 0) if plays_user(r) else "say: hello")
    assert outcome.failure == "user" and "gave no text (refusal)" in str(outcome.message)


def test_a_file_that_names_no_model_for_the_user_is_refused_at_once(tmp_path: Path) -> None:
    from workbench.run import prepare

    (tmp_path / "rows.jsonl").write_text(('{"wish": "w", "home": "h", "city": "c"}\n') * 12)
    text = (
        "name: talk\nlm: bundled/nano\ndata: {file: rows.jsonl, split: {train: 4, val: 4, test: 4}}\n"
        "metric: exact_match(city)\nnodes:\n  n:\n    agent: wish -> city\n    user: {knows: [home]}\n"
        "budget: {calls: 100}\noptimize: [random]\n"
    )
    path = tmp_path / "workflow.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"workflow.yaml:6:.*role `user`"):
        prepare(path, ())
    path.write_text(text + "roles: {user: bundled/nano}\n")
    prepare(path, ())


def test_speech_and_farewell_are_told_from_words_that_look_like_them(tmp_path: Path) -> None:
    from workbench_tools.user import extract_user_message

    assert extract_user_message(" Say: where do\nyou live? ", ["city"]) == "where do\nyou live?"
    assert (
        extract_user_message("city: Oslo\nsay: it loud", ["city"]) is None
        and extract_user_message("say:", ["city"]) is None
    )

    def abandons(request: Request) -> str:
        if plays_user(request):
            return "I have ABANDONED that. Oslo."
        return "city: Oslo" if "Oslo" in str(request.messages[-1]["content"]) else "say: Where to?"

    outcome, script, _ = talk(tmp_path, abandons)
    assert outcome.prediction == {"city": "Oslo"}
    assert script.requests[-1].messages[-1]["content"] == "I have ABANDONED that. Oslo."
    with pytest.raises(SpecError, match="no output may be named 'say'"):
        _ = make_workflow({"n": {**NODE, "agent": "wish -> say"}}, tmp_path).enabled_nodes


def test_an_inner_workflow_asks_for_the_model_that_plays_its_user(tmp_path: Path) -> None:
    from workbench.run import prepare

    (tmp_path / "rows.jsonl").write_text(('{"wish": "w", "home": "h", "city": "c"}\n') * 12)
    head = "lm: bundled/nano\ndata: {file: rows.jsonl, split: {train: 4, val: 4, test: 4}}\nmetric: exact_match(city)\n"
    tail = "budget: {calls: 100}\noptimize: [random]\n"
    inner = "nodes:\n  n:\n    agent: wish -> city\n    user: {knows: [home]}\n"
    (tmp_path / "inner.yaml").write_text(f"name: inner\n{head}{inner}{tail}roles: {{user: bundled/nano}}\n")
    outer = f"name: outer\n{head}nodes:\n  sub: {{workflow: inner.yaml}}\n{tail}"
    (tmp_path / "outer.yaml").write_text(outer)
    with pytest.raises(SpecError, match=r"outer.yaml:6:.*role `user`"):
        prepare(tmp_path / "outer.yaml", ())
    (tmp_path / "outer.yaml").write_text(outer + "roles: {user: bundled/nano}\n")
    prepare(tmp_path / "outer.yaml", ())
