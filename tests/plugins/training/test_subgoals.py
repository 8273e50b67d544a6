"""VSC-RL: what is earned counts for its subgoal, and the reference is asked for the goal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.door import write_door  # noqa: E402
from tests.helpers.grpo_runs import SMALL, learned_rows, run, write  # noqa: E402
from tests.helpers.tiny_lm import make_tokenizer, save, save_taught  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench.run import find_obstacles, prepare  # noqa: E402
from workbench_training.critic.learner import CriticLearner  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.objective import make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate, replace_subgoals  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CRITIC = {"widths": (64,), "rate": 3e-3}
DOOR = write_door("f\"at {self.state['at']}\\nsubgoal: {'door' if self.state['key'] else 'key'}\"", named=False)


def test_the_goal_replaces_subgoals_in_the_tokens_of_a_prompt() -> None:
    tokenizer = make_tokenizer()
    messages = [{"role": "user", "content": "at 1\nsubgoal: key"}, {"role": "assistant", "content": "a key"}]
    messages.append({"role": "user", "content": "subgoal: door"})
    written = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    found = replace_subgoals(messages, ids, r"(?im)^subgoal: (.*)$", "out", tokenizer)
    wanted = written.replace("subgoal: key", "subgoal: out").replace("subgoal: door", "subgoal: out")
    assert found == tuple(tokenizer(wanted, add_special_tokens=False)["input_ids"])
    assert replace_subgoals(messages, ids, "no (.*)", "out", tokenizer) is None
    others = [{"role": "user", "content": "subgoal: run"}]  # the template wrote something else
    assert replace_subgoals(others, ids, "subgoal: (.*)", "out", tokenizer) is None


def make_learner(folder: Path, beta: float = 1.0, rate: float = 1e-3) -> CriticLearner:
    """A policy whose answers depend on the prompt much more than those of a fresh model."""
    policy = Policy(str(save(folder / "base", 0)), device="cpu", seed=0)
    with torch.no_grad():
        for p in policy.trained.values():
            p.mul_(3.0)
    objective = make_objective("vsc_rl", {"critic": {**CRITIC, "normalise": False}, "beta": beta})
    return CriticLearner(policy, objective, Learning.model_validate({"rate": rate}))


def rows_with_goals(seed: int, goal: tuple[int, ...] | None = (3, 30, 31, 32, 1, 4)) -> list[Row]:
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randint(5, 50, (64, 2), generator=draw).tolist()
    return [
        Row((3, 20, 1, 4), tuple(ids), (1, 1), (-4.0, -4.0), 0.0, "t", n, reference_ids=goal, version=seed)
        for n, ids in enumerate(drawn)
    ]


def test_the_divergence_is_that_from_the_reference_asked_for_the_goal(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, rate=1e-12)
    rows = rows_with_goals(0)
    batch, asked = collate(rows), collate([replace(r, prompt_ids=(3, 30, 31, 32, 1, 4)) for r in rows])
    with torch.no_grad():
        apart = learner.policy.log_probabilities(asked)[0] - learner.policy.log_probabilities(batch)[0]
    wanted = float((apart.exp() - apart - 1.0).mean())
    assert wanted > 1e-4
    assert learner.step(rows, [0.0] * 64, 0)["kl"] == pytest.approx(wanted, rel=1e-3)
    assert learner.step(rows_with_goals(1, (3, 20, 1, 4)), [0.0] * 64, 1)["kl"] == pytest.approx(0.0, abs=1e-6)


def test_without_reward_the_policy_of_subgoals_becomes_the_reference_of_the_goal(tmp_path: Path) -> None:
    learner = make_learner(tmp_path)
    rows = rows_with_goals(10**6)
    asked = collate([replace(r, prompt_ids=(3, 30, 31, 32, 1, 4)) for r in rows])
    with torch.no_grad():
        reference = learner.policy.log_probabilities(asked)[0]

    def apart() -> float:
        with torch.no_grad():
            return float((learner.policy.log_probabilities(collate(rows))[0] - reference).pow(2).mean())

    first = apart()
    for step in range(30):
        learner.step(rows_with_goals(step), [0.0] * 64, step)
    assert apart() < 0.5 * first


def test_a_step_without_a_subgoal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"no prompt of this step has a message with .* write a pattern"):
        make_learner(tmp_path).step(rows_with_goals(0, None), [0.0] * 64, 0)


def test_steps_of_an_environment_are_learned_by_their_subgoals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "door.py").write_text(DOOR)
    seen = learned_rows(monkeypatch)
    walk = {"tree_search": "python:door.py:Door", "order": "greedy", "samples": 1, "steps": 6, "max_tokens": 4}
    grpo: dict[str, Any] = {
        "algorithm": "vsc_rl",
        "objective": {"critic": CRITIC, "subgoals": {"field": "label"}},
        "course": {**SMALL["course"], "steps": 1, "tasks": 1, "rollouts": 12},
        "device": "cpu",
    }
    report = run(
        tmp_path,
        lm=f"hf:{save_taught(tmp_path / 'base', list('abcd'))}",
        nodes={"walk": walk},
        rows=(2, 2, 2),
        metric="python:door.py:reached",
        optimizers=[{"grpo": grpo}],
    )
    tokenizer = make_tokenizer()
    assert report.status == "finished" and seen
    for row in seen:
        prompt, asked = (tokenizer.decode(list(ids or ())) for ids in (row.prompt_ids, row.reference_ids))
        assert "subgoal: " in prompt and "subgoal: key" not in asked and "subgoal: door" not in asked


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"subgoals": {"pattern": "subgoal: .*"}}, "has 0 groups"),
        ({"subgoals": {"pattern": "subgoal: ("}}, "is not a regular expression"),
        ({"beta": 0.0}, "need a critic, and a divergence"),
        ({"critic": None}, "need a critic, and a divergence"),
    ],
)
def test_subgoals_that_cannot_be_are_refused(objective: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_objective("vsc_rl", objective)


def test_a_row_without_the_goal_is_refused(tmp_path: Path) -> None:
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": {"algorithm": "vsc_rl"}}]))
    (found,) = [str(e) for e in find_obstacles(task, optimizers) if "subgoals serve" in str(e)]
    assert "in the field 'goal'" in found and "of train lacks" in found
