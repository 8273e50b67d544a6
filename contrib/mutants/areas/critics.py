"""Training: critics."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

CRITIC = "plugins/workbench_training/critic/"
BY_HAND = "tests/plugins/training/test_returns.py"
TESTS = "tests/plugins/training/test_critic.py"
TOKENS = nodes_of(
    TESTS,
    "test_values_become_what_states_are_worth",
    "test_values_are_clipped_by_hand",
    "test_a_divergence_in_the_reward_is_taken_off_before_the_values",
)
TURNS = nodes_of(
    TESTS, "test_the_turn_that_decides_receives_the_credit", "test_turns_of_earlier_steps_are_learned_from_again"
)
STATES = nodes_of(TESTS, "test_values_are_read_from_the_weights_that_training_began_with")
KILLED = nodes_of(TESTS, "test_killed_and_resumed_from_a_checkpoint_it_ends_with_the_same_bits")
CONSTANTS = nodes_of(TESTS, "test_constants_of_an_algorithms_critic")
REFUSED = "tests/plugins/training/test_no_effect.py"
CRITICS: list[Mutant] = [
    *changes_of(
        CRITIC + "returns.py",
        BY_HAND,
        ("discount = gamma if ends[t] else 1.0", "discount = gamma", "POAD discounts within a turn, as PPO does"),
        ("discount = gamma if ends[t] else 1.0", "discount = 1.0", "turns are not discounted"),
        ("error + discount * lam * later", "error + lam * later", "later errors are not discounted"),
        ("+ discount * following - values[t]", "+ discount * following", "GAE knows no value of the state"),
        ("np.diff(drawn) > 1", "np.diff(drawn) > 9", "tokens of others end no turn"),
        ("rollout in stepped else row.agent", "True else row.agent", "an agent earns what another one earned"),
        ("return row.task, row.rollout, row.version", "return row.task, row.rollout, 0", "steps share rollouts"),
    ),
    *changes_of(
        CRITIC + "token_critic.py",
        TOKENS,
        ("torch.maximum((values", "torch.minimum((values", "the clip of values is optimistic"),
        ("self._returns.append(found[1])", "self._returns.append(found[0])", "values become advantages"),
        ("t.rewards - penalty[t.rows, t.places]", "t.rewards", "a divergence in the reward is lost"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/archer/turn_critic.py",
        TURNS,
        ("self.targets[name].lerp_(p, TAU)", "pass", "ArCHer: targets stay those of the beginning"),
        ("worth[turns.ends] - value[turns.starts]", "worth[turns.ends]", "ArCHer: no baseline"),
        (
            "goals = [_place(turns.starts, found[turns.ends], found)",
            "goals = [_place(turns.starts, 0 * found[turns.ends], found)",
            "ArCHer: values of states learn nothing",
        ),
        ("[-REPLAY:]", "[-1:]", "ArCHer: no buffer"),
    ),
    *changes_of(
        CRITIC + "value_model.py",
        STATES,
        ("with self.policy[0].having(self.start):", "if True:", "heads see states that move with the policy"),
    ),
    *changes_of(
        CRITIC + "value_learner.py",
        KILLED,
        ("self.optimizer.load_state_dict(", "_ = (", "the critic's AdamW is forgotten"),
        ('self.steps = int(record["steps"])', "pass", "the critic's warm-up begins again"),
        ('self.model.restore(tensors["critic"])', "pass", "the critic is forgotten"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/archer/turn_critic.py",
        KILLED,
        ("self.buffer = [[Row.from_dict", "_ = [[Row.from_dict", "the buffer is forgotten"),
        ("self.targets = {name: t.to(", "_ = {name: t.to(", "targets are forgotten"),
    ),
    *changes_of(
        CRITIC + "learner.py",
        nodes_of(TESTS, "test_the_critic_alone_learns_in_its_warm_up"),
        ("if self.critic.steps > self.critic.settings.warmup:", "if True:", "there is no warm-up"),
    ),
    *changes_of(
        "plugins/workbench_training/model/memory_count.py",
        nodes_of("tests/plugins/training/test_memory_count.py", "test_the_weights_of_a_critic_are_counted"),
        ("heads = len(kind.heads) * head", "heads = head", "one head is counted"),
    ),
    *changes_of(
        "plugins/workbench_training/papers/archer/turn_critic.py",
        ("tests/plugins/training/test_returns.py",),
        ("np.where(turns.final, 0.0, np.roll", "np.where(False, 0.0, np.roll", "something follows the final turn"),
    ),
]
