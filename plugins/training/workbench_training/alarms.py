"""Signs that a training collapses, from the figures of a step."""

from __future__ import annotations

from collections.abc import Mapping

from workbench_training.settings import ENTROPY, KL, OFF_POLICY_GAP, OFF_POLICY_KL


def find_alarms(figures: Mapping[str, float], policy: str = "") -> list[str]:
    """The alarms of a policy, as text. A figure that is not there raises none, one that is no number does."""
    (low, high), of = ENTROPY, f" of {policy}" if policy else ""
    names = ("entropy", "kl", "off_policy_gap", "off_policy_kl")
    entropy, kl, gap, apart = (figures.get(name_figure(policy, name)) for name in names)
    found = []
    if entropy is not None and not low <= entropy <= high:
        found.append(f"entropy{of} {entropy:.3g} outside {low:g} to {high:g}")
    if kl is not None and not kl <= KL:
        found.append(f"divergence{of} {kl:.3g} above {KL:g}")
    if gap is not None and not gap <= OFF_POLICY_GAP:
        found.append(f"log-probabilities{of} of sampling and training differ by {gap:.3g} on average")
    if apart is not None and not apart <= OFF_POLICY_KL:
        found.append(f"divergence of sampling{of} from training {apart:.3g} above {OFF_POLICY_KL:g}")
    return found


def name_figure(policy: str, name: str) -> str:
    """The name of a policy's figure or tensor; a single policy adds no prefix."""
    return f"{policy}.{name}" if policy else name
