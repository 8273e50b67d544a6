"""The progress of an `sft` or `dpo` training on disk, so that a resumed run need not train again.

After each epoch that ends in a candidate one checkpoint is written (see `policy.write_checkpoint`): the weights,
AdamW's state, the folder of every candidate so far, and for every round the digest of what it learned from. Everything
else that training depends on (model, settings, seed) is in the name of the record's folder.

Of candidates that lost the weights are deleted. The file `lost` names their folders before that, so that a resumed run
knows weights that lost from weights that are missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from workbench.base.hashing import digest
from workbench.errors import StoreError
from workbench_training.learner import Learner
from workbench_training.model.policy import Weights, is_digest, last_checkpoint, write_checkpoint
from workbench_training.rollouts.token_rows import Row
from workbench_training.state.checkpoints import claim_weights, drop_weights, list_losers

#: The file in the record's folder that names the weights that were deleted.
_LOST = "lost"


class TrainingRecord:
    """The epochs that are done. epochs: how many; updates: of the weights in them. scores: of candidates on val, by
    epoch, as this process came to know them."""

    def __init__(self, place: Path, weights: Path):
        """place: a folder for the record alone. weights: where the folders of candidates are. What cannot be read, or
        tells of weights that are gone or only half there, is dropped."""
        self.place, self.weights = place, weights
        self._clear()
        self.dropped: str | None = None  # why what was found here is not used
        try:
            saved = last_checkpoint(place)
            if saved is not None:
                self.epochs, self._tensors, state = saved
                self.updates, self._keys, self._submitted = _checked(state)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            self.drop()
            self.dropped = f"its record cannot be read ({type(error).__name__}: {error})"
        gone = {name for name in self._lost() if not (weights / name).exists()}
        expected = [(name, sizes) for name, sizes in self._submitted.values() if name not in gone]
        if broken := [name for name, sizes in expected if not _holds(weights / name, sizes)]:
            for name in broken:
                _put_aside(weights / name)
            self.drop()
            self.dropped = f"the weights {broken[0]} are gone or not whole"

    def _clear(self) -> None:
        self.epochs, self.updates = 0, 0
        self._keys: list[str] = []  # by round: what was learned from
        self._submitted: dict[str, tuple[str, dict[str, int]]] = {}  # by epoch: the folder, and the sizes of its files
        self._tensors: Mapping[str, Weights] = {}
        self.scores: dict[str, float] = {}

    def drop(self) -> None:
        """Drop the record: train from the start."""
        shutil.rmtree(self.place, ignore_errors=True)
        self._clear()

    def begin(self, round_: int, learned: Sequence[Sequence[Row]], *, held: bool) -> None:
        """Compare a round with the record, which is dropped where the round learns from something else. held: the
        weights are those before the round. Raises StoreError where they are not, so that nothing can be trained."""
        key = digest([[_seen(row) for row in rows] for rows in learned])
        if round_ < len(self._keys) and self._keys[round_] != key:
            self.drop()
            if not held:
                raise StoreError(
                    f"round {round_ + 1} of this training learned from other rows before; resume once more, and it "
                    "is trained anew"
                )
        if round_ >= len(self._keys):
            self._keys.append(key)

    def load(self, learner: Learner) -> int:
        """Restore the learner's state after the last epoch; returns the number of updates so far."""
        learner.load(self._tensors)
        self._tensors = {}
        return self.updates

    def candidate(self, epoch: int) -> Path:
        """The folder of the weights after an epoch."""
        return self.weights / self._submitted[str(epoch)][0]

    def delete_losers(self, keep: int) -> None:
        """Delete the weights of candidates that are not among the best `keep`."""
        submitted = {epoch: (name,) for epoch, (name, _) in self._submitted.items()}
        gone = list_losers(submitted, self.scores, keep) - self._lost()
        if not gone:
            return
        with (self.place / _LOST).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(gone))
        for name in gone:
            drop_weights(self.weights / name, self.place.parent.name)

    def _lost(self) -> set[str]:
        try:
            return set((self.place / _LOST).read_text(encoding="utf-8", errors="replace").split())
        except OSError:
            return set()

    def write(self, learner: Learner, epoch: int, updates: int) -> None:
        """Save the candidate of an epoch, and then the record of it."""
        folder = learner.policy.save(self.weights)
        claim_weights(folder, self.place.parent.name)
        self.epochs, self.updates = epoch, updates
        self._submitted[str(epoch)] = (folder.name, _sizes(folder))
        state = {"updates": updates, "keys": self._keys, "submitted": self._submitted}
        write_checkpoint(self.place, epoch, learner.tensors(), state)


def _checked(state: Any) -> tuple[int, list[str], dict[str, tuple[str, dict[str, int]]]]:
    """updates, keys and submitted of a stored state. Raises KeyError, TypeError and ValueError for any other form than
    `TrainingRecord.write` gives them: a name leads to a folder, and must not lead out of that of the weights."""
    if not isinstance(state, dict):
        raise TypeError("its state is not an object")
    updates, keys, submitted = state["updates"], state["keys"], state["submitted"]
    if type(updates) is not int or not isinstance(keys, list) or not isinstance(submitted, dict):
        raise TypeError("its updates, keys or submitted folders have a wrong type")
    if not all(isinstance(key, str) for key in keys):
        raise TypeError("one of its keys is not text")
    for epoch, (name, sizes) in submitted.items():
        if not epoch.isdecimal() or not is_digest(name):
            raise ValueError(f"the folder of epoch {epoch!r:.40} is none that workbench names")
        if not isinstance(sizes, dict) or not all(type(size) is int for size in sizes.values()):
            raise TypeError("the sizes of its files are no numbers")
    return updates, keys, {epoch: (name, sizes) for epoch, (name, sizes) in submitted.items()}


def _seen(row: Row) -> list[Any]:
    """The parts of a row that training depends on."""
    tokens = [row.prompt_ids, row.token_ids, row.mask, row.logprobs]
    return [*tokens, row.reward, row.task, row.rollout, row.agent, row.version]


def _holds(folder: Path, sizes: Mapping[str, int]) -> bool:
    """True if all recorded files exist with their sizes; other files are ignored."""
    found = _sizes(folder)
    return all(found.get(name) == size for name, size in sizes.items())


def _put_aside(folder: Path) -> None:
    """The same weights get the same name again, and would be taken for written; what else lies there is not ours."""
    if folder.exists():
        names = (folder.with_name(f"not-whole-{folder.name}-{n}") for n in count(1))
        folder.rename(next(name for name in names if not name.exists()))


def _sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
