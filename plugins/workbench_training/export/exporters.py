"""Exporters of trained models: `vllm`, a folder that serves one, and `verl`, one that goes on training it on a cluster.

Names of verl's settings are those of volcengine/verl at b178a3c (29 January 2026);
`contrib/bench/training/verl_keys.py` checks an exported file against a checkout of it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.distribution import pip_install
from workbench.errors import SpecError
from workbench.kit.lms.chat_template import render_chat
from workbench.lm import HasWeights, make_lm
from workbench.runtime import most_tokens
from workbench.spec import LMSpec, lm_spec
from workbench.task import Example, Task, dump_yaml
from workbench.workflow import NodeKind, Workflow, task_lm
from workbench_training.grpo import GRPO
from workbench_training.objective import Objective
from workbench_training.settings import ALPHA, BETAS, MAX_NORM, WEIGHT_DECAY

_AGGREGATE = {"sequence": "seq-mean-token-mean", "token": "token-mean"}
_KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
_UNCAPPED = 1e9  # verl's ratios end at exp(20)

_PLUGIN = '''"""Written by `workbench export --format verl`. verl loads this file for its reward, and so learns of the advantages.

Every machine needs agent-optimization-workbench: `pip install -e .` in a clone.
"""

from verl.trainer.ppo.core_algos import register_adv_est

from workbench_training.export.verl_runtime import advantages_for, score_of

OBJECTIVE = {objective}
REWARDS = {rewards}
GUARDS = {guards}
LONGEST = {longest}  # tokens of an answer; one that takes all of them counts as cut


@register_adv_est("workbench")
def workbench_advantages(token_level_rewards, response_mask, index, config=None, **more):
    return advantages_for(token_level_rewards, response_mask, index, OBJECTIVE, GUARDS, LONGEST)


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **more):
    # What is right for each part of the reward; ground_truth is that of the first.
    return score_of(solution_str, extra_info["truths"], REWARDS, GUARDS)
'''  # noqa: E501


def vllm(workflow: Workflow, path: Path | None, *, task: Task) -> None:
    """Write DIR/serve.sh, which serves the model of the workflow, and DIR/lm.yaml, the `lm:` that then uses it.

    Of weights with an adapter beside them also DIR/serve_adapter.sh, which serves the adapter over its base.
    """
    folder, weights = _folder(path), find_weights(workflow, task)
    name, adapter = task.spec.name, Path(weights) / "adapter"
    scripts = {
        "serve.sh": (
            "# Serves the trained model on port 8000; every other flag of vLLM may follow.",
            f"{shlex.quote(weights)} --served-model-name {shlex.quote(name)}",
        )
    }
    if (adapter / "adapter_config.json").is_file():
        scripts["serve_adapter.sh"] = (
            "# Serves the adapter alone, over its base; several may share one server.",
            _adapter_arguments(adapter, name),
        )
    folder.mkdir(parents=True, exist_ok=True)
    for script, (comment, arguments) in scripts.items():
        text = f'#!/bin/sh\n{comment}\nexec vllm serve {arguments} "$@"\n'
        (folder / script).write_text(text, encoding="utf-8")
        (folder / script).chmod(0o755)
    lm = {"model": f"openai/{name}", "api_base": "http://127.0.0.1:8000/v1"}
    (folder / "lm.yaml").write_text(dump_yaml({"lm": lm}), encoding="utf-8")


def _adapter_arguments(adapter: Path, name: str) -> str:
    """The adapter and its base as arguments of `vllm serve`. The adapter's configuration may be a stranger's: what it
    says is checked and quoted. Raises SpecError."""
    file = adapter / "adapter_config.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        base, rank = about["base_model_name_or_path"], int(about["r"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        base, rank = None, 0
    if not isinstance(base, str) or rank < 1 or "\0" in base:
        raise SpecError(
            f"{file} must name a base model and a rank",
            hint='Write e.g. {"base_model_name_or_path": "org/model", "r": 8}.',
        )
    modules = shlex.quote(f"{name}={adapter}")
    return f"{shlex.quote(base)} --enable-lora --max-lora-rank {rank} --lora-modules {modules}"


def verl(workflow: Workflow, path: Path | None, *, task: Task) -> None:
    """Write what verl needs to go on: rows (messages, their token ids, ground truth, task), settings, a file with our
    advantages and reward, and the command. Of workflows with one `predict` node. Raises SpecError."""
    folder, weights = _folder(path), find_weights(workflow, task)
    settings, node = _settings(task), _node(workflow)
    rewards = _rewards(task, settings, node)
    targets = list(dict.fromkeys(str(part["target"]) for part in rewards))
    data = {"train": task.dataset.train, "val": task.dataset.val}
    rows = {name: [_row(node, e, targets, weights) for e in part] for name, part in data.items()}
    prompt_tokens = max((len(row["extra_info"]["prompt_ids"]) for part in rows.values() for row in part), default=0)
    objective = settings.resolve_objective()
    longest = most_tokens(task.spec.lm, getattr(node, "settings", {}).get("max_tokens"))
    text = _PLUGIN.format(
        objective=objective.model_dump(mode="json", exclude_defaults=True),
        rewards=rewards,
        guards=list(settings.guards),
        longest=longest,
    )
    tree = verl_settings(settings, objective, weights, folder.resolve(), prompt_tokens, longest, task.spec.name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in rows.items():
        _write_rows(part, folder / f"{name}.parquet")
    (folder / "workbench_verl.py").write_text(text, encoding="utf-8")
    (folder / "verl.yaml").write_text(dump_yaml(tree), encoding="utf-8")
    command = '#!/bin/sh\ncd "$(dirname "$0")"\nexec python3 -m verl.trainer.main_ppo --config-path "$PWD" --config-name verl "$@"\n'  # noqa: E501
    (folder / "run.sh").write_text(command, encoding="utf-8")
    (folder / "run.sh").chmod(0o755)


vllm.needs_task = verl.needs_task = True  # type: ignore[attr-defined]


def find_weights(workflow: Workflow, task: Task) -> str:
    """The folder or hub id of the weights of the workflow's language model. Raises SpecError."""
    own = [
        lm_spec(node["lm"])
        for name, node in workflow.nodes.items()
        if name in workflow.enabled_nodes and node.get("lm")
    ]
    everyone = len(own) == len(workflow.enabled_nodes)  # nobody is left who would use the workflow's own model
    specs = [*own, *([] if everyone else [task_lm(task.spec.lm, workflow)])]
    if len({s.model for s in specs}) > 1:
        raise SpecError(
            f"the nodes use several models: {', '.join(dict.fromkeys(s.model for s in specs))}",
            hint="One is exported at a time: give all nodes the same `lm`, or none of their own.",
        )
    spec: LMSpec = specs[0]
    lm = make_lm(spec)
    if not isinstance(lm, HasWeights):
        raise SpecError(
            f"the weights of {spec.model} are not here", hint="Export a run whose LM is hf:PATH or bundled/nano."
        )
    return lm.weights


def _folder(path: Path | None) -> Path:
    """The folder that is to be written, which is made only when nothing can be refused any more."""
    if path is None:
        raise SpecError("this export is a folder", hint="Name it with --out FOLDER.")
    if path.exists() and not path.is_dir():
        raise SpecError(f"{path} is a file, and this export is a folder", hint="Name another with --out FOLDER.")
    return path


def _settings(task: Task) -> GRPO:
    """Return the settings of the last `grpo` of the workflow file; its defaults where there is none."""
    entries = [entry["grpo"] for entry in task.spec.optimize if "grpo" in entry]
    return GRPO.model_validate(entries[-1] if entries else {})


def _rewards(task: Task, settings: GRPO, node: NodeKind) -> list[dict[str, Any]]:
    """The parts of the reward as a cluster computes them, the workflow's metric by its rule. Raises SpecError."""
    if "duplicates" in settings.guards:
        raise SpecError(
            "verl scores each answer by itself, so it has no place for the guard against duplicates",
            hint="Remove `duplicates` from `guards`.",
        )
    found = []
    for part in settings.rewards:
        if part.kind not in ("metric", "tool_n1", "exact_match") or part.field:
            raise SpecError(
                f"verl has no place for the reward {part.kind}{' of a field' if part.field else ''}",
                hint="Give grpo `rewards` of tool_n1 or exact_match, of the whole answer.",
            )
        found.append(part.model_dump() | (_metric(task, node) if part.kind == "metric" else {}))
    return found


def _metric(task: Task, node: NodeKind) -> dict[str, str]:
    """The rule and the target of the workflow's metric."""
    name, hint = str(task.spec.metrics[0]).partition("(")[0], "Give grpo `rewards` of tool_n1 or exact_match."
    if name not in ("tool_n1", "exact_match"):
        raise SpecError(f"verl has no place for the metric {name}", hint=hint)
    field = str(getattr(task.metric, "field", "label"))
    target = str(getattr(task.metric, "target", field))
    rights = [e[target] for e in (*task.dataset.train, *task.dataset.val)] if name == "exact_match" else []
    if any(isinstance(right, list) for right in rights):
        raise SpecError(f"the field '{target}' lists several right values, and verl compares with one", hint=hint)
    for right in rights[:1]:
        chat = node.training_chat({**dict.fromkeys((*node.inputs, *node.outputs, "reasoning"), ""), field: right})
        if chat is None or chat[-1]["content"].strip() != _truth(right).strip():
            raise SpecError(
                f"the metric compares the field '{field}', and verl the whole answer, in which more stands", hint=hint
            )
    return {"kind": name, "target": target}


def _node(workflow: Workflow) -> NodeKind:
    nodes = list(workflow.enabled_nodes.values())
    if (
        len(nodes) != 1
        or nodes[0].training_chat(dict.fromkeys((*nodes[0].inputs, *nodes[0].outputs, "reasoning"), "")) is None
    ):
        raise SpecError(
            "verl's rows have one prompt each: the workflow must be a single predict node, and this one has "
            + ", ".join(f"{n.name} ({type(n).__name__})" for n in nodes)
        )
    return nodes[0]


def _row(node: NodeKind, example: Example, targets: Sequence[str], weights: str) -> dict[str, Any]:
    values = {**dict.fromkeys((*node.outputs, "reasoning"), ""), **{n: example[n] for n in node.inputs}}
    chat = node.training_chat(values)
    assert chat is not None
    truths = {target: _truth(example[target]) for target in targets}
    return {
        "data_source": "workbench",
        "prompt": chat[:-1],
        "ability": node.name,
        "reward_model": {"style": "rule", "ground_truth": truths[targets[0]]},
        "extra_info": {
            "index": example.id,
            "task": example.id,
            "prompt_ids": _ids(chat[:-1], weights),
            "truths": truths,
        },
    }


def _truth(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)


def _ids(messages: Sequence[Mapping[str, Any]], weights: str) -> list[int]:
    """Token ids of a prompt, as rollouts here have them: to compare with what the cluster makes of it."""
    tokenizer = _tokenizer(weights)
    text = render_chat(tokenizer, messages, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


_TOKENIZERS: dict[str, Any] = {}


def _tokenizer(weights: str) -> Any:
    if weights not in _TOKENIZERS:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise SpecError(f"this export needs transformers: {pip_install('grpo', 'parquet')}") from None

        _TOKENIZERS[weights] = AutoTokenizer.from_pretrained(weights, trust_remote_code=False)
    return _TOKENIZERS[weights]


def _write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SpecError(f"this export needs pyarrow: {pip_install('parquet')}") from None
    if rows:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def verl_settings(
    settings: GRPO, objective: Objective, weights: str, folder: Path, prompt_tokens: int, longest: int, name: str
) -> dict[str, Any]:
    """verl's settings for ours. Raises SpecError for what verl's losses do not have."""
    schedule, learning, mode = settings.resolve_schedule(), settings.resolve_learning(), _loss_mode(settings, objective)
    model: dict[str, Any] = {"path": weights}
    if settings.lora:
        model |= {"lora_rank": settings.lora.rank, "lora_alpha": ALPHA, "target_modules": "all-linear"}
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "data": {
            "train_files": str(folder / "train.parquet"),
            "val_files": str(folder / "val.parquet"),
            "train_batch_size": schedule.tasks,
            "max_prompt_length": -(-prompt_tokens // 64) * 64 or 64,
            "max_response_length": longest,
            "truncation": "error",
        },
        "actor_rollout_ref": {
            "model": model,
            "actor": _actor_settings(settings, objective, mode),
            "rollout": {
                "name": "vllm",
                "n": schedule.rollouts,
                "temperature": learning.temperature,
                "tensor_model_parallel_size": 1,
                "log_prob_use_dynamic_bsz": True,
            },
            "ref": {"log_prob_use_dynamic_bsz": True},
        },
        "critic": {"enable": False},
        "algorithm": {
            "adv_estimator": "workbench",
            "use_kl_in_reward": bool(objective.beta) and objective.kl_place == "reward",
        },
        "custom_reward_function": {"path": str(folder / "workbench_verl.py"), "name": "compute_score"},
        "trainer": {
            "total_training_steps": schedule.steps,
            "test_freq": schedule.evaluate_every,
            "save_freq": schedule.save_every,
            "logger": ["console"],
            "nnodes": 1,
            "n_gpus_per_node": 1,
            "project_name": "workbench",
            "experiment_name": name,
        },
    }


def _loss_mode(settings: GRPO, objective: Objective) -> str:
    """verl's name for the loss. Raises SpecError for what verl does not have."""
    modes = {("clip", "token"): "vanilla", ("clip", "sequence"): "gspo", ("cispo", "token"): "cispo"}
    mode = modes.get((objective.surrogate, objective.ratio))
    ours = objective.constraints or objective.step_weight or objective.critic
    if mode is None or objective.aggregate not in _AGGREGATE or ours:
        raise SpecError(
            f"verl has no loss for the algorithm {settings.algorithm} as it is set",
            hint="Take grpo, dapo, lite_ppo, gspo or cispo.",
        )
    schedule = settings.resolve_schedule()
    lost = [
        name
        for name, there in (
            ("a divergence in the reward", objective.beta and objective.kl_place == "reward"),
            ("resets of the reference", objective.resets),
            ("dynamic_sampling", schedule.dynamic_sampling),
            ("replay", schedule.replay),
            ("staleness", schedule.staleness),
            ("straggler_cut", schedule.straggler_cut),
            ("a curriculum", schedule.curriculum),
            ("stages", settings.stages),
            ("ramps", settings.ramps),
            ("policies", settings.policies),
            (f"`on_alarm: {schedule.on_alarm}`", schedule.on_alarm != "tell"),
        )
        if there
    ]
    if lost:
        raise SpecError(
            f"verl's settings have no place for {', '.join(lost)}",
            hint="Leave them out to export the rest; what the algorithm itself sets is left out by a 0, as in "
            "schedule: {dynamic_sampling: 0}.",
        )
    return mode


def _actor_settings(settings: GRPO, objective: Objective, mode: str) -> dict[str, Any]:
    schedule, learning = settings.resolve_schedule(), settings.resolve_learning()
    return {
        "optim": {
            "lr": learning.rate or (1e-5 if settings.lora else 1e-6),
            "weight_decay": WEIGHT_DECAY,
            "betas": list(BETAS),
            "lr_warmup_steps": learning.warmup or -1,
        },
        "ppo_mini_batch_size": max(1, schedule.tasks // learning.minibatches),
        "ppo_epochs": learning.epochs,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": learning.micro_tokens,
        **_clips(objective),
        "loss_agg_mode": _AGGREGATE[objective.aggregate],
        "policy_loss": {"loss_mode": mode},
        "use_kl_loss": bool(objective.beta) and objective.kl_place == "loss",
        "kl_loss_coef": objective.beta,
        "kl_loss_type": _KL[objective.kl],
        "entropy_coeff": 0,
        "grad_clip": MAX_NORM,
    }


def _clips(objective: Objective) -> dict[str, float]:
    """verl's names for the bounds of the ratio. Its cispo keeps the ratio within 1 - low and 1 + high, where ours has a
    cap and no floor, which a low of 1 says; and its plain loss always caps the ratio of bad answers, by default at
    3."""
    if objective.surrogate == "cispo":
        return {"clip_ratio_low": 1.0, "clip_ratio_high": objective.clip_high - 1.0}
    return {
        "clip_ratio_low": objective.clip_low,
        "clip_ratio_high": objective.clip_high,
        "clip_ratio_c": _UNCAPPED,
    }
