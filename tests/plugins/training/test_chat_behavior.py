"""How a model speaks goes with its weights: through baseline, rollouts, candidates and export, whatever the names."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.grpo_runs import SMALL, needs_torch, run, write
from tests.helpers.scripted import make_workflow

from workbench.errors import SpecError
from workbench.lm import Request, Response, make_lm
from workbench.run import prepare
from workbench.spec import LMSpec, lm_spec
from workbench_training.chat_behavior import ChatBehavior
from workbench_training.export import vllm
from workbench_training.grpo import GRPO
from workbench_training.rewards import RewardTerm, limit_terms
from workbench_training.rollouts.node_settings import find_call_limit
from workbench_training.settings import round_rank

#: A template that says what it was rendered with.
TEMPLATE = (
    "{% for m in messages %}{{ '<a>' if m['role'] == 'assistant' else '<u>' }}{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<a>{{ '--' if enable_thinking is defined and not enable_thinking }}{% endif %}"
)
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


def save_named(folder: Path) -> Path:
    """A tiny checkpoint with the template above."""
    from tests.helpers.tiny_lm import make_tokenizer, save

    save(folder, 0, positions=512)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("model", "extra", "place", "limit"),
    [
        ("qwen3-tiny", {}, "run", 6 + 8192),
        ("qwen3-tiny", PLAIN, "run", 6),
        ("tiny", {}, "qwen3-run", 6),
    ],
    ids=["a name that thinks", "switched off", "a folder of the run that thinks"],
)
def test_baseline_rollouts_and_candidates_have_the_same_limit_and_template(
    model: str, extra: dict[str, Any], place: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch()
    from workbench_engine.generation import Generator
    from workbench_hf.provider import HFLM
    from workbench_training.serving.policy_lm import PolicyLM

    monkeypatch.setattr("workbench.runtime.requests.THOUGHT_TOKENS", 8192)
    asked, prompts = defaultdict[str, set[int]](set), list[str]()
    encode = Generator.encode

    def watch(kind: type, name: Any) -> None:
        real = kind.complete

        async def complete(self: Any, request: Request) -> Any:
            asked[name(self)].add(request.max_tokens)
            return await real(self, replace(request, max_tokens=4))

        monkeypatch.setattr(kind, "complete", complete)

    def encoded(self: Any, *args: Any, **more: Any) -> list[int]:
        ids = encode(self, *args, **more)
        prompts.append(self.tokenizer.decode(ids))
        return ids

    monkeypatch.setattr(Generator, "encode", encoded)
    watch(HFLM, lambda lm: "candidate" if "run-weights" in lm.weights else "baseline")
    watch(PolicyLM, lambda lm: "rollout")
    base = save_named(tmp_path / "models" / model)
    report = run(
        tmp_path / place,
        lm={"model": f"hf:{base}", "extra": {"device": "cpu", **extra}},
        nodes={"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6, "temperature": 1.0}}},
        rows=(4, 4, 4),
        optimizers=[
            {"grpo": {**SMALL, "schedule": {**SMALL["schedule"], "steps": 2}, "rewards": [{"kind": "length"}]}}
        ],
        keep_unproved=True,
    )
    assert report.status == "finished", report.error
    assert dict(asked) == {"baseline": {limit}, "rollout": {limit}, "candidate": {limit}}
    assert prompts and {prompt.endswith("<a>--") for prompt in prompts} == {bool(extra)}


def spec(model: str, **more: Any) -> LMSpec:
    return LMSpec.model_validate({"model": model, **more})


@pytest.mark.parametrize(
    ("base", "named", "written"),
    [
        (spec("hf:Qwen/Qwen3-0.6B"), "policy:abc@3", {"thinks": True}),
        (spec("hf:Qwen/Qwen3-0.6B"), "hf:/runs/Qwen3/0123456789abcdef", {}),
        (spec("hf:Qwen/Qwen3-0.6B", extra=PLAIN), "policy:abc@3", {}),
        (spec("hf:Qwen/Qwen3-0.6B", extra=PLAIN), "hf:/runs/Qwen3/0123456789abcdef", {"thinks": False}),
        (spec("hf:Qwen/Qwen3-0.6B", thinks=False), "policy:abc@3", {}),
        (spec("hf:org/mine", thinks=True), "policy:abc@3", {"thinks": True}),
        (spec("bundled/nano"), "policy:abc-reasoner@3", {"thinks": False}),
        (spec("bundled/nano", max_tokens=64), "policy:abc@3", {"max_tokens": 64}),
        (spec("bundled/nano"), "openai/gpt-5-sort", {"thinks": False}),
    ],
)
def test_a_new_name_changes_nothing_but_the_name(base: LMSpec, named: str, written: dict[str, Any]) -> None:
    from workbench.runtime import max_tokens

    lm = ChatBehavior.of(base).under({"model": named})
    assert lm == {"model": named, **written}
    for answer in (None, 16, 10000):
        assert max_tokens(lm_spec(lm), answer) == max_tokens(base, answer)


def test_an_export_speaks_as_the_weights_do(tmp_path: Path) -> None:
    (tmp_path / "qwen3").mkdir()
    (tmp_path / "qwen3/model.safetensors").write_bytes(b"")
    for extra, more in (({}, {"thinks": True}), (PLAIN, {"extra": PLAIN})):
        lm = {"model": f"hf:{tmp_path / 'qwen3'}", "max_tokens": 90, "extra": extra}
        task = prepare(write(tmp_path, lm=lm))[2]
        vllm(task.workflow, tmp_path / "out", task=task)
        found = yaml.safe_load((tmp_path / "out/lm.yaml").read_text())["lm"]
        served = {"model": "openai/tickets", "api_base": "http://127.0.0.1:8000/v1"}
        assert found == {**served, "max_tokens": 90, **more}
        assert lm_spec(found).model_dump() == spec(**found).model_dump()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("off", "chat_template_kwargs is no mapping"),
        ({"messages": []}, "'messages' is no setting of a chat template"),
        ({"tools": None}, "'tools' is no setting"),
        ({"add_generation_prompt": False}, "'add_generation_prompt' is no setting"),
        ({"enable thinking": True}, "'enable thinking' is no setting"),
        ({"x": float("nan")}, "holds what is no JSON"),
    ],
)
def test_settings_of_a_template_that_cannot_be_are_refused(settings: Any, message: str, tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(SpecError, match=message):
        make_lm(spec(f"hf:{tmp_path}", extra={"chat_template_kwargs": settings}))


def test_settings_of_a_template_are_part_of_the_models_identity(tmp_path: Path) -> None:
    needs_torch()
    base = save_named(tmp_path / "tiny")
    plain, off, on = (
        make_lm(spec(f"hf:{base}", extra=extra))
        for extra in ({}, PLAIN, {"chat_template_kwargs": {"enable_thinking": True}})
    )
    assert len({plain.identity, off.identity, on.identity}) == 3
    assert off.identity == plain.identity + '{"enable_thinking": false}'
    again = make_lm(spec(f"hf:{base}", extra={"chat_template_kwargs": {"b": 1, "a": [2]}}))
    assert again.identity == plain.identity + json.dumps({"a": [2], "b": 1})


def test_later_turns_and_taught_chats_are_rendered_with_the_settings_of_the_model(tmp_path: Path) -> None:
    needs_torch()
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.sft_data import make_chat_tokenizer
    from workbench_training.serving.policy_lm import make_conversations

    policy = Policy(str(save_named(tmp_path / "tiny")), device="cpu", **PLAIN)
    decode = policy.tokenizer.decode
    prompt, _ = make_chat_tokenizer(policy).turn([{"role": "user", "content": "1"}], "2")
    assert decode(prompt) == "<u>1<end><a>--"
    talk = make_conversations(policy.generator)
    first = Request(({"role": "user", "content": "1"},))
    ids = talk.prompt_ids(first)
    said = policy.tokenizer("2<end>")["input_ids"]
    talk.remember(first, Response("2", "stop", len(ids), 2, 0.0, prompt_ids=tuple(ids), token_ids=tuple(said)))
    asked = Request((*first.messages, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}))
    assert decode(talk.prompt_ids(asked)).endswith("<u>3<end><a>--")


# Limits


@pytest.mark.parametrize(
    ("lm", "nodes", "address", "limit"),
    [
        ({"max_tokens": 1024}, {"a": {}}, "lm", 1024),
        ({}, {"a": {}}, "lm", 512),
        ({"max_tokens": 1024}, {"a": {"decoding": {"max_tokens": 40}}}, "lm", 40),
        ({"max_tokens": 64}, {"a": {"decoding": {"max_tokens": 40}}, "b": {}}, "lm", 64),
        ({}, {"a": {"decoding": {"max_tokens": 40}}, "b": {"decoding": {"max_tokens": 90}}}, "lm", 90),
        ({}, {"a": {"lm": "bundled/nano", "decoding": {"max_tokens": 900}}, "b": {}}, "lm", 512),
        ({"max_tokens": 7}, {"a": {"lm": "bundled/nano"}, "b": {}}, "nodes.a.lm", 7),
        ({"thinks": True}, {"a": {"decoding": {"max_tokens": 40}}}, "lm", 40 + 8192),
        ({"thinks": True, "max_tokens": 2000}, {"a": {"decoding": {"max_tokens": 40}}}, "lm", 2000),
    ],
)
def test_the_limit_is_that_of_the_calls(
    lm: dict[str, Any], nodes: dict[str, Any], address: str, limit: int, tmp_path: Path
) -> None:
    made = {name: {"predict": f"text -> {name}", **node} for name, node in nodes.items()}
    workflow = make_workflow(made, tmp_path)
    assert find_call_limit(workflow, address, spec("bundled/nano", **lm)) == limit


def test_the_limit_inside_another_node_counts(tmp_path: Path) -> None:
    inner = {"predict": "text -> label", "decoding": {"max_tokens": 33}}
    workflow = make_workflow({"vote": {"ensemble": inner, "samples": 3}}, tmp_path)
    assert find_call_limit(workflow, "lm", spec("bundled/nano")) == 33


def test_overlong_takes_the_limit_of_the_model_where_the_file_names_none() -> None:
    given = [RewardTerm(kind="overlong"), RewardTerm(kind="overlong", tokens=9), RewardTerm(kind="length")]
    assert [term.tokens for term in limit_terms(given, 1024)] == [1024, 9, 256]
    assert [term.tokens for term in limit_terms(given, None)] == [256, 9, 256]


def test_dr_grpo_divides_by_the_limit_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    from workbench_training.learner import Learner

    seen, real = list[int](), Learner.__init__

    def watched(self: Any, policy: Any, objective: Any, *args: Any, **more: Any) -> None:
        seen.append(objective.max_tokens)
        real(self, policy, objective, *args, **more)

    monkeypatch.setattr(Learner, "__init__", watched)
    schedule = {"steps": 1, "tasks": 1, "rollouts": 2}
    run(
        tmp_path,
        lm={"model": "bundled/nano", "max_tokens": 24},
        nodes={"sort": {"predict": "text -> label"}},
        optimizers=[{"grpo": {"algorithm": "dr_grpo", "schedule": schedule}}],
        rows=(4, 4, 4),
    )
    assert seen == [24]


# Ranks of adapters


@pytest.mark.parametrize(
    ("rank", "allowed"), [(1, 1), (2, 8), (4, 8), (8, 8), (12, 16), (24, 32), (48, 64), (257, 320), (512, 512)]
)
def test_a_rank_is_rounded_up_to_one_that_vllm_takes(rank: int, allowed: int, tmp_path: Path) -> None:
    needs_torch()
    from workbench_training.serving.weight_transfer import list_options

    assert round_rank(rank) == allowed
    options, _ = list_options("adapter", sleep=False, rank=rank, adapters=1)
    assert options[options.index("--max-lora-rank") + 1] == str(allowed)
    task = adapted(tmp_path, rank)
    vllm(task.workflow, tmp_path / "out", task=task)
    assert f"--max-lora-rank {allowed} " in (tmp_path / "out/serve_adapter.sh").read_text()


def test_a_rank_that_vllm_does_not_take_is_refused(tmp_path: Path) -> None:
    task = adapted(tmp_path, 513)
    with pytest.raises(SpecError, match="up to rank 512, and this one has 513"):
        vllm(task.workflow, tmp_path / "out", task=task)
    with pytest.raises(ValueError, match="up to rank 512"):
        GRPO.model_validate({"server": {}, "lora": {"rank": 1024}})
    GRPO.model_validate({"lora": {"rank": 1024}})


def adapted(folder: Path, rank: int) -> Any:
    (folder / "weights/adapter").mkdir(parents=True)
    (folder / "weights/model.safetensors").write_bytes(b"")
    about = {"base_model_name_or_path": "org/base", "r": rank}
    (folder / "weights/adapter/adapter_config.json").write_text(json.dumps(about))
    return prepare(write(folder, lm=f"hf:{folder / 'weights'}"))[2]
