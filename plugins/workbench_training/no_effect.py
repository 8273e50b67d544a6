"""Settings of `grpo` that would do nothing beside the others, found before the first call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.errors import SpecError
from workbench_training.objective import Objective, pair_losses
from workbench_training.settings import Learning, TrainingSchedule

ONE_UPDATE = "a step has one update, in which every ratio is 1"


class NoEffect(NamedTuple):
    """A setting by its place, why it has no effect, and what to write instead."""

    place: tuple[str, ...]
    reason: str
    instead: str

    def error(self) -> SpecError:
        return SpecError(f"{self.place[-1]} has no effect: {self.reason}", hint=self.instead, path=self.place)


def find_idle_objective(
    given: Collection[str], objective: Objective, learnings: Sequence[Learning], schedule: TrainingSchedule
) -> Iterator[NoEffect]:
    """Settings of the objective that were given and that its loss does not read.

    Args:
        given: names of the settings in the file.
        objective, learnings, schedule: as the algorithm resolves them; learnings: of all policies.
    """
    aged = schedule.replay > 0 or (schedule.staleness > 0 and not objective.is_corrected)  # rows of older weights
    several = any(s.epochs * s.minibatches > 1 for s in learnings) or aged
    for name, reason in _unread(objective).items():
        if name in given:
            yield NoEffect(("objective", name), reason, f"Remove {name}, or choose another algorithm.")
    for name in ("clip_low", "clip_high", "delta", "ratio"):
        if name in given and name not in _unread(objective) and not several:
            yield NoEffect(("objective", name), ONE_UPDATE, "Write e.g. `learning: {minibatches: 4}`.")
    if "correction" in given and objective.correction is not None and objective.is_corrected:
        if all(s.temperature != 1.0 for s in learnings):
            reason = "log-probabilities that samplers report are those at temperature 1"
            yield NoEffect(("objective", "correction"), reason, "Write `learning: {temperature: 1}`.")


def _unread(o: Objective) -> dict[str, str]:
    """Settings that the loss of an objective does not read, with the reason."""
    form, found = f"`surrogate: {o.surrogate}`", dict[str, str]()

    def unread(reason: str, *names: str) -> None:
        for name in names:
            found.setdefault(name, reason)

    if o.surrogate == "pairs":
        compared = "compares the answers to one prompt by their rewards"
        advantages = ("group", "count", "baseline", "scale", "step_weight", "constraints")
        unread(f"{form} {compared}", *advantages, "ratio", "aggregate", "kl", "kl_place")
        if not pair_losses()[o.pair_loss].reads_reference:
            unread(f"`pair_loss: {o.pair_loss}` has no reference", "beta")
    else:
        unread(f"{form} compares no pairs with each other", "pair_loss", "pair_beta")
    if o.critic is not None:
        unread("a critic gives the advantages", "group", "count", "baseline", "scale")
    if o.surrogate != "clip":
        unread(f"{form} has no lower clip", "clip_low")
    if o.surrogate not in ("clip", "cispo"):
        unread(f"{form} has no clip", "clip_high")
    if o.surrogate != "clip":
        unread(f"{form} has no second clip", "delta")
    if o.surrogate == "likelihood":
        unread(f"{form} has no ratio", "ratio")
    if o.surrogate not in ("clip", "cispo") and o.correction is not None:
        unread(f"{form} has no policy term over rows that weights of sampling could multiply", "correction")
    if not o.beta:
        unread("beta is 0", "kl", "kl_place")
    if o.kl_place == "reward":
        unread("in the reward the divergence is that of the log-ratio (k1)", "kl")
    if not o.step_weight:
        unread("step_weight is 0", "gamma", "step_scale")
    return found


def find_idle_schedule(given: Collection[str], schedule: TrainingSchedule) -> Iterator[NoEffect]:
    """Settings of the schedule that were given and that nothing reads."""
    if not schedule.horizon and "horizon_steps" in given:
        yield NoEffect(("schedule", "horizon_steps"), "there is no horizon", "Write e.g. `horizon: [5, 10]`.")
    for name in ("evaluate_every", "save_every"):
        if schedule.staleness and getattr(schedule, name) == 1:
            reason = f"with `{name}: 1` each step begins after a candidate or a checkpoint, with the current weights"
            yield NoEffect(("schedule", "staleness"), reason, f"Write e.g. `{name}: 10`.")


def find_idle_learning(place: tuple[str, ...], learning: Learning, objective: Objective) -> Iterator[NoEffect]:
    """`max_tokens`, where the objective does not divide by it."""
    if "max_tokens" in learning.model_fields_set and not _divides(objective):
        reason = "only `aggregate: constant`, as in dr_grpo, divides by it"
        yield NoEffect((*place, "max_tokens"), reason, "Limit answers by max_tokens of the LM or of the node.")


def _divides(objective: Objective) -> bool:
    return objective.aggregate == "constant" and objective.surrogate != "pairs"


def check_divisor(place: tuple[str, ...], learning: Learning, objective: Objective, longest: Mapping[str, int]) -> None:
    """Raises SpecError where the default divisor of `aggregate: constant` is not what the file lets nodes write.
    longest: tokens by address."""
    if not _divides(objective) or "max_tokens" in learning.model_fields_set or not longest:
        return
    address, most = max(longest.items(), key=lambda item: item[1])
    if most != learning.max_tokens:
        raise SpecError(
            f"`aggregate: constant` divides by learning.max_tokens, {learning.max_tokens} by default, but {address} "
            f"is {most}",
            hint=f"Write `learning: {{max_tokens: {most}}}`.",
            path=(*place, "max_tokens"),
        )


def find_limits(tree: Any, prefix: str) -> Iterator[tuple[str, int]]:
    """(address, number) of every max_tokens in the nodes."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key == "max_tokens" and isinstance(value, int):
                yield f"{prefix}.{key}", value
            elif key not in ("demos", "user"):
                yield from find_limits(value, f"{prefix}.{key}")
