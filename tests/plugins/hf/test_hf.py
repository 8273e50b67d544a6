"""hf: on a tiny random model with a tokenizer of its own, both made here."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import LMError, PluginError, SpecError
from workbench.lm import LM, Request, Response
from workbench_hf import provider

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    from workbench_engine.generation import Generator, Row

TEMPLATE = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} ; {% endfor %}assistant :"
WORDS = ["<pad>", "<end>", "<unk>", "user", "assistant", "system", ":", ";", *(f"w{i}" for i in range(40))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.3,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(**values: Any) -> Any:
    return SimpleNamespace(**({"concurrency": None, "extra": {"device": "cpu"}} | values))


def request(text: str, **values: Any) -> Request:
    return Request(({"role": "user", "content": text},), **({"max_tokens": 12} | values))


def ask(folder: Any, *requests: Request, lm: Any = None, **values: Any) -> list[Response]:
    lm = lm or provider.hf(str(folder), settings(**values))

    async def run() -> list[Response]:
        try:
            return await asyncio.gather(*[lm.complete(r) for r in requests])
        finally:
            await lm.aclose()

    return asyncio.run(run())


def test_greedy_equals_transformers_generate(checkpoint):
    prompts = ["w1", "w2 w3 w4 w5 w6", "w7 w8 w9"]
    answers = ask(checkpoint, *map(request, prompts))
    reference = Generator.load(str(checkpoint), device="cpu")
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = reference.encode([{"role": "user", "content": prompt}])
        assert answer.prompt_ids == tuple(ids) and answer.prompt_tokens == len(ids)
        out = reference.model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=12, do_sample=False
        )
        assert answer.token_ids == tuple(out[0, len(ids) :].tolist())
        assert answer.completion_tokens == len(answer.token_ids) and answer.usd == 0.0


def test_logprobs_are_those_of_the_model(checkpoint):
    answer, _ = ask(checkpoint, request("w1 w2", temperature=1.0), request("w3 " * 9))
    model = Generator.load(str(checkpoint), device="cpu").model
    ids = torch.tensor([answer.prompt_ids + answer.token_ids])
    with torch.inference_mode():
        scores = torch.log_softmax(model(ids).logits[0, len(answer.prompt_ids) - 1 : -1], -1)
    expected = scores[range(len(answer.token_ids)), list(answer.token_ids)]
    assert torch.allclose(torch.tensor(answer.logprobs), expected, atol=1e-4)


def test_samples_do_not_depend_on_the_batch(checkpoint):
    mine = request("w1 w2 w3", temperature=1.0, top_p=0.9)
    others = [request("w4 " * n, temperature=0.5 * n, max_tokens=3 * n) for n in range(1, 6)]
    alone = ask(checkpoint, mine)[0]
    assert ask(checkpoint, *others, mine)[-1].token_ids == alone.token_ids
    assert ask(checkpoint, mine, *others[:2], concurrency=2)[0].token_ids == alone.token_ids


def test_replicas_and_prompts_are_different_draws(checkpoint):
    requests = [request("w1 w2", temperature=1.5, replica=n) for n in range(8)]
    answers = {answer.token_ids for answer in ask(checkpoint, *requests)}
    assert len(answers) > 4
    assert answers == {answer.token_ids for answer in ask(checkpoint, *requests)}


def test_sampling_follows_the_distribution(checkpoint):
    generator = Generator.load(str(checkpoint), device="cpu")
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    n = 20_000

    def frequencies(temperature=1.0, top_p=1.0):
        rows = [Row([1], 1, temperature, top_p, (), seed) for seed in range(n)]
        counts = Counter(generator._choose(rows, logits.repeat(n, 1)).flatten().tolist())
        return [counts[i] / n for i in range(4)]

    assert frequencies() == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.015)
    assert frequencies(top_p=0.75) == pytest.approx([0.625, 0.375, 0, 0], abs=0.015)
    assert frequencies(top_p=0.0) == [1, 0, 0, 0]
    heat = torch.softmax(logits / 0.5, -1).tolist()
    assert frequencies(temperature=0.5) == pytest.approx(heat, abs=0.015)


def test_stops_length_and_end(checkpoint):
    full = ask(checkpoint, request("w1 w2"))[0]
    words = full.text.split()
    assert full.finish == "length" and full.completion_tokens == 12
    stop = words[4]
    cut = ask(checkpoint, request("w1 w2", stop=(stop,)))[0]
    assert cut.finish == "stop" and stop not in cut.text
    assert cut.completion_tokens == words.index(stop) + 1, "it does not generate beyond the stop"
    samples = ask(checkpoint, *[request("w1", temperature=3.0, replica=n, max_tokens=40) for n in range(24)])
    ended = [answer for answer in samples if answer.finish == "stop"]
    assert ended and all(answer.token_ids[-1] == 1 and "<end>" not in answer.text for answer in ended)


def test_long_prompts_fail_alone_and_answers_end_with_the_context(checkpoint):
    lm = provider.hf(str(checkpoint), settings())

    async def run():
        calls = [request("w1 " * 70), request("w2 " * 50, max_tokens=500), request("w3")]
        results = await asyncio.gather(*map(lm.complete, calls), return_exceptions=True)
        await lm.aclose()
        return results

    long, full, fine = asyncio.run(run())
    assert isinstance(long, LMError) and long.kind == "too_long"
    assert full.finish in ("length", "stop") and full.prompt_tokens + full.completion_tokens <= 64
    assert fine.text


def test_waiting_calls_share_batches(checkpoint, monkeypatch):
    sizes = []
    original = Generator.generate

    def generate(self, rows, refill=None):
        sizes.append(len(rows))
        original(self, rows, refill)

    monkeypatch.setattr(Generator, "generate", generate)
    ask(checkpoint, *[request(f"w{n}") for n in range(12)])
    assert sum(sizes) == 12 and len(sizes) <= 3


def test_a_batch_that_does_not_fit_is_halved(checkpoint, monkeypatch):
    original = Generator.generate

    def generate(self, rows, refill=None):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("no room")
        original(self, rows, refill)

    requests = [request(f"w{n}", temperature=1.0) for n in range(7)]
    expected = [answer.token_ids for answer in ask(checkpoint, *requests)]
    monkeypatch.setattr(Generator, "generate", generate)
    assert [answer.token_ids for answer in ask(checkpoint, *requests)] == expected


def test_a_cancelled_call_leaves_the_others_alone(checkpoint):
    lm = provider.hf(str(checkpoint), settings())

    async def run():
        doomed = asyncio.create_task(lm.complete(request("w1")))
        other = asyncio.create_task(lm.complete(request("w2")))
        await asyncio.sleep(0)
        doomed.cancel()
        assert (await other).text
        with pytest.raises(asyncio.CancelledError):
            await doomed
        await lm.aclose()

    asyncio.run(run())


def test_identity_follows_the_weights(checkpoint, tmp_path):
    first = provider.hf(str(checkpoint), settings())
    assert isinstance(first, LM) and first.identity == provider.hf(str(checkpoint), settings()).identity
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1
    model.save_pretrained(tmp_path / "tiny")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "tiny" / name).write_bytes((checkpoint / name).read_bytes())
    assert provider.hf(str(tmp_path / "tiny"), settings()).identity != first.identity


def test_equal_models_are_loaded_once_and_freed_by_the_last(checkpoint, monkeypatch):
    loads = []
    original = Generator.__init__

    def load(self, *args, **kwargs):
        loads.append(args)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Generator, "__init__", load)

    async def run():
        one, two = (provider.hf(str(checkpoint), settings()) for _ in range(2))
        await asyncio.gather(one.complete(request("w1")), two.complete(request("w2")))
        await one.aclose()
        await one.aclose()
        assert (await two.complete(request("w3"))).text
        with pytest.raises(RuntimeError, match="closed"):
            await one.complete(request("w1"))
        await two.aclose()

    before = len(provider._ENGINES)
    asyncio.run(run())
    assert len(loads) == 1 and len(provider._ENGINES) == before


def test_a_model_that_is_only_checked_keeps_no_weights_in_memory(checkpoint):
    """As `lm:` of every file is, before the run makes its own: a training would share the GPU with the baseline."""

    async def run():
        checked, used = (provider.hf(str(checkpoint), settings()) for _ in range(2))
        before = dict(provider._ENGINES)
        await used.complete(request("w1"))
        (engine,) = provider._ENGINES.keys() - before.keys()
        await used.aclose()
        assert engine not in provider._ENGINES and checked.identity

    asyncio.run(run())


def test_refusals(tmp_path, monkeypatch):
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(SpecError, match="safetensors"):
        provider.hf(str(tmp_path), settings())
    with pytest.raises(SpecError, match="no folder"):
        provider.hf(str(tmp_path / "missing"), settings())
    with pytest.raises(SpecError, match="unknown setting 'trust_remote_code'"):
        provider.hf("a/b", settings(extra={"trust_remote_code": True}))
    lm = provider.hf("a/b", settings())
    with pytest.raises(LMError, match="no response format"):
        asyncio.run(lm.complete(request("x", response_format={"type": "json_object"})))
    monkeypatch.setattr(provider, "version", lambda package: "2.10.1")
    with pytest.raises(PluginError, match=r"torch>=2.11: pip install -e '\./plugins/training\[local\]'"):
        provider.hf("a/b", settings())


def test_a_run_of_the_workbench_records_a_rollout_that_training_can_use(checkpoint, tmp_path) -> None:
    """The runtime that optimizers use carries tokens: the recorded log-probabilities are those of the model itself."""
    from workbench.ledger import Ledger
    from workbench.runtime import Program, Runtime
    from workbench.spec import BudgetSpec, lm_spec
    from workbench.store import Store
    from workbench.task import Example
    from workbench.workflow import Workflow

    node = {"kind": "predict", "signature": "text -> reply", "decoding": {"temperature": 1.0, "max_tokens": 6}}
    workflow = Workflow({"nodes": {"first": node, "second": {**node, "signature": "reply -> final"}}}, tmp_path)

    async def main():
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        spec = lm_spec({"model": f"hf:{checkpoint}", "extra": {"device": "cpu"}})
        traces = []
        for _ in range(2):  # the second time from the journal
            runtime = Runtime(Ledger(store, 1, BudgetSpec.model_validate({})), spec)
            traces.append((await Program(workflow, runtime).run(Example("1", {"text": "w1 w2"}))).trace)
            await runtime.pool.aclose()
        store.close()
        return traces

    fresh, replayed = asyncio.run(main())
    assert [step["agent"] for step in fresh.rollout] == ["first", "second"][: len(fresh.rollout)]
    assert fresh.rollout == replayed.rollout and fresh.rollout
    model = transformers.LlamaForCausalLM.from_pretrained(checkpoint)
    for step in fresh.rollout:
        ids = torch.tensor([[*step["prompt_ids"], *step["token_ids"]]])
        logits = model(ids).logits[0, len(step["prompt_ids"]) - 1 : -1].log_softmax(-1)
        expected = logits.gather(1, torch.tensor(step["token_ids"])[:, None])[:, 0]
        assert torch.allclose(expected, torch.tensor(step["logprobs"]), atol=1e-4)
        assert step["turn"] == 0 and len(step["logprobs"]) == len(step["token_ids"])


# Checkpoints of strangers


@pytest.fixture
def copied(checkpoint, tmp_path):
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


class Payload:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_an_index_that_names_a_pickle_is_refused_before_anything_is_read(copied, monkeypatch):
    monkeypatch.chdir(copied)
    (copied / "model.safetensors").rename(copied / "model-1.safetensors")
    torch.save({"model.embed_tokens.weight": Payload()}, copied / "model-2.bin")
    names = {"lm_head.weight": "model-1.safetensors", "model.embed_tokens.weight": "model-2.bin"}
    (copied / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    told = "model.safetensors.index.json names 'model-2.bin', and only .safetensors beside it are read"
    with pytest.raises(SpecError, match=told):
        provider.hf(str(copied), settings())
    with pytest.raises(SpecError, match=told):
        Generator.load(str(copied), device="cpu")
    assert not (copied / "ran").exists()


def test_a_model_of_the_checkpoint_s_own_code_is_not_run(copied):
    (copied / "own.py").write_text(f"import os\nos.mkdir({str(copied / 'ran')!r})\nOwn = OwnTokenizer = None\n")
    change(copied / "config.json", auto_map={"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Own"})
    change(copied / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.OwnTokenizer", None]})
    model = Generator.load(str(copied), device="cpu").model
    assert type(model) is transformers.LlamaForCausalLM and not (copied / "ran").exists()


def test_a_configuration_does_not_choose_kernels(copied, monkeypatch):
    asked = []
    monkeypatch.setattr(transformers.integrations.hub_kernels, "get_kernel", lambda *a, **k: asked.append(a))
    change(copied / "config.json", attn_implementation="org/kernel")
    with pytest.raises(SpecError, match="asks for the code 'org/kernel' as attn_implementation"):
        provider.hf(str(copied), settings())
    monkeypatch.setattr("workbench_engine.generation.check_checkpoint", lambda *_: None)
    model = Generator.load(str(copied), device="cpu").model
    assert model.config._attn_implementation == "sdpa" and not asked, "not even where the check is passed"


def test_a_chat_template_without_an_end_is_one_error(copied, monkeypatch):
    monkeypatch.setattr("workbench_engine.chat_template.DEADLINE", 1.0)
    loops = "{% set r = range(99999) %}" + "{% for a in r %}" * 3 + "{% endfor %}" * 3
    (copied / "chat_template.jinja").write_text(loops)
    with pytest.raises(LMError, match="the chat template refuses the messages: it took more than 1 s") as caught:
        ask(copied, request("w1"))
    assert caught.value.kind == "bad_request"
