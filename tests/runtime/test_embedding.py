"""Vectors of texts: by a server, by LiteLLM, by a local checkpoint, and in the store of a `recall` node."""

from __future__ import annotations

import asyncio
import json
import threading
from array import array
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows
from tests.helpers.tiny_lm import save

from workbench.errors import LMError, SpecError
from workbench.ledger import Ledger
from workbench.lm import CanEmbed
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench_memory.node import Recall
from workbench_openai.client import openai

TEXTS = ["abca", "zzz", "b"]


def letters(text: str) -> list[float]:
    return [float(text.count(c)) for c in "abcxyz"]


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # else a body waits 40 ms for its head

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        server.seen.append((self.path, body))
        rows = [{"object": "embedding", "index": i, "embedding": letters(t)} for i, t in enumerate(body["input"])]
        answer = {"object": "list", "model": "m", "data": rows[::-1], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
        if server.fault == "short":
            answer["data"] = rows[:1]
        raw = b"{" if server.fault == "broken" else json.dumps(answer).encode()
        self.send_response(int(server.fault) if server.fault.isdigit() else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def server() -> Iterator[Any]:
    found: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    found.seen, found.fault, found.base = [], "", f"http://127.0.0.1:{found.server_port}/v1"
    thread = threading.Thread(target=found.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def settings(base: str, **more: Any) -> Any:
    return lm_spec({"model": "openai/m", "api_base": base, **more})


def embed(lm: Any, texts: list[str]) -> Any:
    async def main() -> Any:
        try:
            return await lm.embed(texts)
        finally:
            await lm.aclose()

    assert isinstance(lm, CanEmbed)
    return asyncio.run(main())


def test_a_server_gives_vectors_in_the_order_of_the_texts(server: Any) -> None:
    vectors, tokens = embed(openai("m", settings(server.base, extra={"dimensions": 6})), TEXTS)
    assert vectors == [letters(t) for t in TEXTS] and tokens == 9
    assert server.seen == [("/v1/embeddings", {"model": "m", "input": TEXTS, "dimensions": 6})]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("short", "bad_body"), ("broken", "bad_body"), ("429", "rate_limit"), ("500", "server"), ("401", "auth")],
)
def test_faults_are_typed_errors(fault: str, kind: str, server: Any) -> None:
    server.fault = fault
    with pytest.raises(LMError) as raised:
        embed(openai("m", settings(server.base)), TEXTS)
    assert raised.value.kind == kind and len(server.seen) == 1


@pytest.mark.slow
def test_litellm_gives_vectors_too(server: Any) -> None:
    from workbench_litellm.provider import anything

    vectors, tokens = embed(anything("openai/m", settings(server.base)), TEXTS)
    assert vectors == [letters(t) for t in TEXTS] and tokens == 9
    server.fault = "429"
    with pytest.raises(LMError) as raised:
        embed(anything("openai/m", settings(server.base)), TEXTS)
    assert raised.value.kind == "rate_limit"


@pytest.mark.training
def test_a_checkpoint_gives_the_mean_of_its_last_states(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from workbench_engine.generation import Generator
    from workbench_hf.provider import hf

    folder = save(tmp_path / "tiny", hidden=32)
    made = SimpleNamespace(concurrency=None, extra={"device": "cpu"})
    vectors, tokens = embed(hf(str(folder), made), ["abc", "1", "abc", "x" * 500])
    assert vectors[0] == vectors[2] != vectors[1] and {len(v) for v in vectors} == {32}
    assert tokens == 3 + 1 + 3 + 128, "what exceeds the context is cut"
    reference = Generator.load(str(folder), device="cpu")
    with torch.inference_mode():
        states = reference.model.model(torch.tensor([reference.tokenizer("abc")["input_ids"]])).last_hidden_state
    assert torch.allclose(torch.tensor(vectors[0]), states[0].mean(0), atol=1e-5)
    assert embed(hf(str(folder), made), ["abc"])[0] == vectors[:1], "whatever comes with it"


class Embeds(Script):
    """A scripted pool whose members embed by letters, too; after `most` requests for vectors it is killed."""

    def __init__(self, most: int = 10**6):
        super().__init__(lambda request: "a")
        self.asked, self.most = list[list[str]](), most

    async def embed(self, texts: Any) -> tuple[list[list[float]], int]:
        await asyncio.sleep(0)
        if len(self.asked) >= self.most:
            raise KeyboardInterrupt
        self.asked.append(list(texts))
        return [letters(t) for t in texts], len(texts)


STORE = [{"inputs": {"text": t}, "outputs": {"label": t}} for t in ("aab", "xxy", "zzz", "cca")]
NODE = {"recall": "text -> notes", "entries": STORE, "policy": "embedding", "embedder": "openai/vectors", "k": 2}


def play(folder: Path, texts: list[str], script: Any = None, **more: Any) -> tuple[list[Any], Any]:
    script = script or Embeds()
    outcomes = run_rows(
        make_workflow({"r": {**NODE, **more}}, folder), [{"text": t} for t in texts], script, folder / "run.db"
    )
    return outcomes, script


def test_the_nearest_by_vectors_are_recalled_and_each_text_is_paid_once(tmp_path: Path) -> None:
    """No word is shared, so that a search by words would find nothing."""
    outcomes, script = play(tmp_path, ["aaaabb", "yxxx", "aaaabb", "zz"])
    shown = [o.trace.spans[0].notes["recalled"][-1] for o in outcomes]
    assert shown == [0, 1, 0, 2] and "label: aab" in outcomes[0].prediction["notes"]
    assert script.asked == [[e["inputs"]["text"] for e in STORE], ["aaaabb"], ["yxxx"], ["zz"]]
    assert [[c.cached for c in o.trace.calls] for o in outcomes] == [
        [False] * 2,
        [True, False],
        [True] * 2,
        [True, False],
    ]
    assert not script.requests
    assert all("vectors)" in c.response.text for o in outcomes for c in o.trace.calls), "no vectors in traces"


def test_a_resumed_run_asks_for_nothing_again_and_finds_the_same(tmp_path: Path) -> None:
    whole, _ = play(tmp_path, ["aaaabb", "yxxx", "zz"])
    again, script = play(tmp_path, ["aaaabb", "yxxx", "zz"])
    assert script.asked == [] and [o.prediction for o in again] == [o.prediction for o in whole]
    (tmp_path / "killed").mkdir()
    with pytest.raises(BaseException):  # noqa: B017, PT011  (a kill)
        play(tmp_path / "killed", ["aaaabb", "yxxx", "zz"], Embeds(2))
    resumed, script = play(tmp_path / "killed", ["aaaabb", "yxxx", "zz"])
    assert script.asked == [["yxxx"], ["zz"]] and [o.prediction for o in resumed] == [o.prediction for o in whole]


def test_what_a_request_holds_does_not_hang_on_who_asked_before(tmp_path: Path) -> None:
    """Else a resumed run, in which another may be faster, would send and pay for requests that are in no journal."""
    script = Embeds()

    async def main() -> None:
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('r', 'running', '', '', '')")
        runtime = Runtime(Ledger(store, 1, BudgetSpec.model_validate({})), lm_spec("openai/m"), {}, script)
        ask = runtime.embedder(lm_spec("openai/vectors"), "task")
        found = await asyncio.gather(
            *(ask(texts) for texts in (["aab", "xxy"], ["xxy"], ["aab", "xxy"], ["xxy", "zzz"]))
        )
        assert [vectors for vectors, _ in found][2] == [array("f", letters(t)) for t in ("aab", "xxy")]
        assert [[call.cached for _, call in calls] for _, calls in found] == [[False], [False], [True], [False]]
        store.close()

    asyncio.run(main())
    assert script.asked == [["aab", "xxy"], ["xxy"], ["xxy", "zzz"]]


def test_an_input_never_gets_its_own_answer(tmp_path: Path) -> None:
    outcomes, _ = play(tmp_path, ["aab"], k=4)
    assert 0 not in outcomes[0].trace.spans[0].notes["recalled"]


def test_calls_are_counted_before_they_are_made(tmp_path: Path) -> None:
    node: Any = make_workflow({"r": {**NODE, "entries": STORE * 20}}, tmp_path)

    made = node.enabled_nodes["r"]
    assert isinstance(made, Recall) and made.max_calls == 1 + 2
    assert make_workflow({"r": {**NODE, "policy": "lexical"}}, tmp_path).enabled_nodes["r"].max_calls == 0


def test_what_cannot_embed_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot embed texts"):
        play(tmp_path, ["a"], Script(lambda request: "a"))
    with pytest.raises(SpecError, match="needs a language model that embeds"):
        make_workflow({"r": {k: v for k, v in NODE.items() if k != "embedder"}}, tmp_path)


def test_a_refused_request_fails_the_examples_that_need_it(tmp_path: Path) -> None:
    class Fails(Embeds):
        async def embed(self, texts: Any) -> tuple[list[list[float]], int]:
            if not self.asked:
                self.asked.append(list(texts))
                raise LMError("bad_request", "no")
            return await super().embed(texts)

    outcomes, _ = play(tmp_path, ["aaaabb", "zz"], Fails())
    assert [o.failure for o in outcomes] == ["bad_request", "bad_request"], (
        "the journal keeps that this request is refused"
    )
