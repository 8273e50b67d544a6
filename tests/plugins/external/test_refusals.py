"""What a model's server refused is told where the user looks, and so is which models an agent named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.helpers.external_agents import CLIENT, write_agent
from tests.helpers.passing import model
from tests.helpers.upstream import Upstream, chat_answer, upstream

from workbench.errors import LMError, SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Response
from workbench.run import prepare
from workbench.spec import lm_spec
from workbench_external import asking
from workbench_external.asking import Refusals, choose_model
from workbench_external.config import ExternalConfig
from workbench_external.gateway import Refused
from workbench_external.observed import describe_calls, observe_file
from workbench_external.session import MAX_FAILURES
from workbench_testing.simulated import LABELS

REFUSAL = (400, {"error": {"message": "top_logprobs is not for this model", "type": "invalid_request_error"}})
TWO = f"""{CLIENT.replace('"model": "gpt-4o-mini"', '"model": settings.pop("name")')}
said = [{{"role": "user", "content": row["text"]}}]
chat(said, name="small")
print(chat(said, name="large")["content"])
"""
ASKS_ONCE = f"""{CLIENT}
print(chat([{{"role": "user", "content": "Sort this letter, please: " + row["text"]}}])["content"])
"""


def written(folder: Path, server: Upstream, source: str, **settings: Any) -> Path:
    path = write_agent(folder, source, rows=(4, 4, 4), **settings)
    spec = json.loads(path.read_text())
    spec["lm"] = model("openai/up", server.address)
    path.write_text(json.dumps(spec))
    return path


def test_ea8_slots_tells_that_the_agent_asked_and_what_the_server_said(tmp_path: Path) -> None:
    with upstream() as server:
        server.answers["chat/completions"] = [REFUSAL] * 4
        path = written(tmp_path, server, ASKS_ONCE)
        with pytest.raises(SpecError) as caught:
            observe_file(prepare(path)[2], path, tmp_path / "run.db", 2)
    told = str(caught.value)
    assert "it asked 1 time and was refused: status 400" in told and "top_logprobs is not for this model" in told
    assert "before it asked a model" not in told


def test_ea8_and_5_a_row_that_fails_and_the_models_are_told(tmp_path: Path) -> None:
    with upstream() as server:
        server.answers["chat/completions"] = [chat_answer("x"), REFUSAL]
        path = written(tmp_path, server, TWO)
        _, (run,), _ = observe_file(prepare(path)[2], path, tmp_path / "run.db", 1)
    assert run.failure == "exit" and "it asked 1 time and was refused: status 400" in str(run.message)
    assert describe_calls([run]) == ["'agent': the agent named 1 model: small: 1 call, $0.0000, answered by openai/up"]


def test_5_the_models_that_an_agent_names_are_told_by_eval(tmp_path: Path) -> None:
    with upstream() as server:
        path = written(tmp_path, server, TWO, models={"*": "as-named"}, slots={})
        report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
        assert {body["model"] for body in server.bodies("chat/completions")} == {"small", "large"}
    (line,) = [line for line in report.warnings if "named" in line]
    assert "small: 4 calls, $" in line and "answered by openai/small" in line and "large: 4 calls" in line
    with upstream() as server:
        path = written(tmp_path, server, ASKS_ONCE)
        report = evaluate(path, database=tmp_path / "one.db", options=EvalOptions(split="val"))
        assert not report.failures and not report.warnings, "one model is what the file says"


def test_names_that_are_not_used_any_more_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_MAX_MODELS", 3)
    named = asking.Named()
    for name in ["used", "a", "used", "b", "used", "c", "used", "d"]:
        named.count(name, Response("", usd=1.0), f"openai/{name}")
    assert {name: one["calls"] for name, one in named.by_name.items()} == {"used": 4, "d": 1, asking.OTHERS: 3}
    assert sum(one["usd"] for one in named.by_name.values()) == 8
    assert "(others): 3 calls, $3.0000" in named.describe()


def test_a_text_is_new_unless_it_is_among_the_last() -> None:
    latest = asking.Latest(2)
    assert [text for text in ["used", "a", "used", "b", "used", "c", "used", "a"] if latest.is_new(text)] == [
        *["used", "a", "b", "c", "a"]
    ]


@pytest.mark.parametrize(
    ("named", "usual", "wanted"),
    [
        ("gpt-x", "openai/up", "openai/gpt-x"),
        ("anthropic/claude", "openai/up", "anthropic/claude"),
        ("meta/llama", "hosted_vllm/up", "hosted_vllm/meta/llama"),
        ("small", "openai/up", "openai/one"),
    ],
)
def test_5_as_named_is_the_model_of_the_agents_request(named: str, usual: str, wanted: str) -> None:
    config = ExternalConfig(
        signature="text -> label",
        command=["true"],
        models={"*": "as-named", "small": "openai/one", "sonnet": "anthropic/sonnet"},
        lm="openai/two",
    )
    spec = choose_model(config, named, None, lm_spec({"model": usual, "api_key_env": "MY_KEY"}))
    assert spec.model == wanted and spec.timeout == 600
    assert spec.api_key_env == ("MY_KEY" if wanted.startswith(usual.partition("/")[0]) and named != "small" else None)


@pytest.mark.parametrize(
    ("named", "settings", "wanted"),
    [
        ("anthropic/claude", {"api_key_env": "K"}, {}),
        ("openai/b", {"api_key_env": "K", "price": {"input": 1, "output": 1}}, {"api_key_env": "K"}),
        ("b", {"extra": {"headers": {"A": "$K"}}}, {"extra": {"headers": {"A": "$K"}}}),
        ("litellm/b", {"extra": {"headers": {"A": "$K"}}}, {}),
        ("anthropic/claude", {"api_base": "http://router/v1", "api_key_env": "K"}, None),
        ("openai/b", {"api_base": "http://router/v1", "price": {"input": 1, "output": 1}}, None),
        ("", {"api_key_env": "K"}, None),
    ],
)
def test_h9_a_key_goes_to_its_own_provider_and_a_price_is_that_of_one_model(
    named: str, settings: dict[str, Any], wanted: dict[str, Any] | None
) -> None:
    """`as-named` sent the key of one provider to whichever another name began with, and a router's names elsewhere."""
    others = {"other": "anthropic/x", "third": "litellm/x"}
    config = ExternalConfig(signature="text -> label", command=["true"], models={"*": "as-named", **others})
    found = choose_model(config, named, None, lm_spec({"model": "openai/a", **settings}))
    kept = {name: value for name, value in found.model_dump(exclude_unset=True).items() if name != "timeout"}
    model = kept.pop("model")
    if wanted is not None:
        assert kept == wanted and model == (named if "/" in named else f"openai/{named}")
    else:  # all of them hold, for the model of that name at that server
        assert kept.keys() == settings.keys() and model == (f"openai/{named}" if named else "openai/a")


@pytest.mark.parametrize("named", ["anthropic/claude", "gemini/pro", "litellm/gemini/x", "hosted_vllm/x"])
def test_h34_as_named_leads_to_no_provider_that_the_file_does_not_name(named: str) -> None:
    """An agent, or who wrote its prompt, chose who is told the rows, and with which key of the environment."""
    config = ExternalConfig(signature="text -> label", command=["true"], models={"*": "as-named"}, lm="openai/two")
    usual = lm_spec("openai/up")
    with pytest.raises(Refused, match=rf"{named} is of another provider .* \(openai\)\. .* under models"):
        choose_model(config, named, None, usual)
    slots = {"system": {"in": "system", "match": "x", "lm": f"{named}"}}
    other = ExternalConfig.model_validate({**config.model_dump(), "slots": slots})
    assert choose_model(other, named, None, usual).model == named
    assert choose_model(config, "qwen/max", None, usual).model == "openai/qwen/max", "as a router's names are"


def test_h34_the_servers_words_stand_behind_what_the_agent_is_told() -> None:
    words = LMError("server", "status 500: no room", status=500)
    told = Refused(502, "server", "The language model did not answer.")
    told.__cause__ = words
    refusals = Refusals()
    for error in (told, words):
        refusals.note(error)
        assert refusals.last == "status 500: no room"
    assert refusals.count == 2


FALLS_BACK = f"""{CLIENT.replace('"model": "gpt-4o-mini"', '"model": settings.pop("name")')}
said = [{{"role": "user", "content": row["text"]}}]
try:
    print(chat(said, name="large")["content"])
except OSError as error:
    told = str(error)
    if not any(f" {{status}} " in told.splitlines()[0] for status in (401, 404, 529)) or "x-own: kept" not in told:
        raise
    print(chat(said, name="small")["content"])
"""


@pytest.mark.parametrize("status", [401, 404, 529])
def test_1_an_agent_falls_back_in_a_row_as_it_does_without_us(status: int, tmp_path: Path) -> None:
    """Once a call, and the run goes on. A key that is refused is sent no more, and the agent is told the same."""
    refused = {"error": {"message": "no", "type": "some_error"}}

    async def answer(request: web.Request) -> web.Response:
        if (await request.json())["model"] == "large":
            return web.json_response(refused, status=status, headers={"x-own": "kept"})
        return web.json_response(chat_answer(LABELS[0]))

    with upstream() as server:
        server.answers["chat/completions"] = [answer] * 99
        path = written(tmp_path, server, FALLS_BACK, models={"*": "as-named"}, slots={})
        report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
        asked = [body["model"] for body in server.bodies("chat/completions")]
    assert report.status == "finished" and not report.failures
    large = asked.count("large")
    assert asked.count("small") == 4 and large == report.spent["calls"] - 4
    assert 1 <= large <= 4 if status == 401 else large == 4


def test_1_a_rate_limit_that_our_rows_at_once_bring_about_is_waited_out(tmp_path: Path) -> None:
    limited = (429, {"error": {"message": "slow down", "type": "rate_limit_error"}})
    with upstream() as server:
        server.answers["chat/completions"] = [limited] * 3
        path = written(tmp_path, server, ASKS_ONCE)
        report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
        assert report.status == "finished" and len(server.asked) == 4 + 3


def test_1_what_the_client_was_told_is_asked_again_and_attempts_of_the_file_are_ours(tmp_path: Path) -> None:
    busy = (503, {"error": {"message": "busy"}})
    twice = (
        f"{ASKS_ONCE}".replace("print(chat(", "ask = lambda: chat(").replace('["content"])', '["content"]')
        + """
try:
    print(ask())
except OSError as error:
    assert " 503 " in str(error).splitlines()[0]
    print(ask())
"""
    )
    with upstream() as server:
        server.answers["chat/completions"] = [busy]
        path = written(tmp_path, server, twice, calls=1)
        report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
        assert not report.failures and len(server.asked) == 5, "a call that got no answer counts as none"
    with upstream() as server:
        server.answers["chat/completions"] = [busy]
        path = written(tmp_path, server, ASKS_ONCE)
        spec = json.loads(path.read_text())
        spec["lm"]["attempts"] = 2
        path.write_text(json.dumps(spec))
        report = evaluate(path, database=tmp_path / "again.db", options=EvalOptions(split="val"))
        assert not report.failures and len(server.asked) == 5


def test_3_a_path_whose_cost_nobody_can_count_is_refused_by_name_in_a_run(tmp_path: Path) -> None:
    speaks = f"""{CLIENT.replace("/chat/completions HTTP", "/{asked} HTTP")}
said = [{{"role": "user", "content": row["text"]}}]
for asked in ("audio/speech", "files"):
    try:
        chat(said)
    except (OSError, KeyError) as error:
        pass
asked = "chat/completions"
print(chat(said)["content"])
"""
    with upstream() as server:
        path = written(tmp_path, server, speaks)
        _, (run,), _ = observe_file(prepare(path)[2], path, tmp_path / "run.db", 1)
        assert [asked for asked, *_ in server.asked] == ["files", "chat/completions"]
    assert "POST /audio/speech is not passed on in a run" in "\n".join(describe_calls([run]))


def test_security_1_a_row_that_asks_on_and_on_for_what_is_refused_ends(tmp_path: Path) -> None:
    """Its time does not pass while it waits for a model, and a call that failed is none of `calls`."""
    loops = f"""{CLIENT}
while True:
    try:
        chat([{{"role": "user", "content": row["text"]}}])
    except OSError as error:
        assert " 400 " in str(error).splitlines()[0]
"""
    with upstream() as server:
        server.answers["chat/completions"] = [REFUSAL] * 100
        path = written(tmp_path, server, loops, calls=2, slots={}, budget=90)
        spec = json.loads(path.read_text())
        path.write_text(json.dumps({**spec, "concurrency": 1}))
        report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
        asked = len(server.asked)
    assert report.status == "finished" and report.failures == {"steps": 4}
    assert asked == 4 * (MAX_FAILURES * 2 + 1)


def test_1_a_draw_that_failed_takes_no_other_calls_answer(tmp_path: Path) -> None:
    """Of two equal requests at once the first fails: asked again, it gets an answer of its own."""
    draws = f"""{CLIENT}
from threading import Thread
got = []
def ask():
    for _ in range(2):
        try:
            got.append(chat([{{"role": "user", "content": row["text"]}}])["content"])
            return
        except OSError as error:
            assert " 503 " in str(error).splitlines()[0]
both = [Thread(target=ask), Thread(target=ask)]
[one.start() for one in both]
[one.join() for one in both]
print(json.dumps(sorted(got)))
"""
    second = asyncio.Event()

    async def fails(request: web.Request) -> web.Response:
        await second.wait()
        return web.json_response({"error": {"message": "busy"}}, status=503)

    async def answers(request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_later(0.3, second.set)
        return web.json_response(chat_answer("one"))

    with upstream() as server:
        server.answers["chat/completions"] = [fails, answers, chat_answer("two")]
        path = written(tmp_path, server, draws, calls=2, output="text")
        spec = json.loads(path.read_text())
        spec["nodes"]["agent"]["external"] = "text -> label"
        path.write_text(json.dumps(spec))
        _, (run,), _ = observe_file(prepare(path)[2], path, tmp_path / "run.db", 1)
    assert run.prediction == {"label": '["one", "two"]'}, run.message
