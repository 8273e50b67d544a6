"""Space on disk that a training takes at its peak, compared with what is free before the first rollout is paid for.

A checkpoint holds the trained weights, AdamW's two moments of each, and the reference and the best weights where these
are kept. Two checkpoints stay, and the next is complete before the oldest goes; so is the next candidate.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import SpecError
from workbench_training.objective import Critic

if TYPE_CHECKING:
    from torch import Tensor

    from workbench_training.model.policy import Policy

GIB = 1 << 30
#: A training that takes less than this share of what is free is not mentioned.
_NOTABLE = 0.1


@dataclass(frozen=True)
class Written:
    """Numbers of what a training writes, at its peak.

    checkpoints, candidates: complete ones on disk at once. copies: of the trained weights in a checkpoint. critic: of
    each policy, which checkpoints hold with its own moments.
    """

    checkpoints: int
    candidates: int
    copies: int = 3
    critic: Critic | None = None


def count_written(
    steps: int,
    *,
    every: int,
    save_every: int,
    keep: int,
    copies: int,
    records: int = 1,
    critic: Critic | None = None,
) -> Written:
    """Count what a training of so many steps writes. keep: candidates that stay; 0: all. records: trainings, each of
    which keeps its last two checkpoints."""
    candidates = -(-steps // every)
    checkpoints = min(-(-steps // save_every), 2)
    return Written(
        checkpoints=records * checkpoints + (steps > 2 * save_every or records > 1),
        candidates=min(candidates, keep + 1) if keep else candidates,
        copies=copies,
        critic=critic,
    )


def describe_space(written: Written, policies: Sequence[Policy], folder: Path, *, sent: bool = False) -> str:
    """Describe the space that a training takes; "" where that is little of what is free.

    sent: two versions of the weights may be on their way to a server, in files.

    Raises:
        SpecError: the disk of the folder has less, what the training wrote there before counted in.
    """
    trained = sum(_count_bytes(policy.trained.values()) for policy in policies)
    whole = sum(_count_bytes(policy.inner.parameters()) for policy in policies)
    adapters = sum(_count_bytes(policy.trained.values()) for policy in policies if policy.lora)
    checkpoint, candidate = written.copies * trained, whole + adapters
    if written.critic is not None:
        from workbench_training.model.memory_count import count_critic_checkpoint

        checkpoint += sum(count_critic_checkpoint(written.critic, policy.inner.config) for policy in policies)
    transferred = 2 * (adapters or whole) if sent else 0
    peak = written.checkpoints * checkpoint + written.candidates * candidate + transferred
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    free += sum(path.stat().st_size for own in list_own(folder) for path in own.rglob("*.safetensors"))
    told = (
        f"{peak / GIB:.2f} GiB on disk at the peak ({written.checkpoints} checkpoints of {checkpoint / GIB:.2f}, "
        f"{written.candidates} candidates of {candidate / GIB:.2f}"
        f"{f', {transferred / GIB:.2f} on their way to the server' if transferred else ''}), and {free / GIB:.2f} are "
        f"free at {place}"
    )
    if peak > free:
        raise SpecError(
            f"training writes more than the disk has: {told}",
            hint="Free some, put the run database on another disk with --db, keep fewer candidates with `keep: 1`, or "
            "train an adapter: `lora: {}`.",
        )
    return f"training writes up to {told}" if peak > _NOTABLE * free else ""


def _count_bytes(parameters: Iterable[Tensor]) -> int:
    return sum(p.numel() * p.element_size() for p in parameters)


def list_own(folder: Path) -> list[Path]:
    """List the folders that a training wrote before it was killed: its records, whose names begin with that of its
    folder, and the candidates that these claim."""
    records = folder.parent.glob(f"{folder.name}*")
    candidates = {path.with_suffix("") for path in folder.parent.glob(f"*.{folder.name}*")}
    return [path for path in (*records, *candidates) if path.is_dir()]
