"""The samples that a run of a workflow draws, as replica numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

#: The replicas of a child or a call are numbered within those of its parent.
STRIDE = 1000


class Variation(Protocol):
    """A departure of a run from its workflow: repaired steps, or content inserted by an attacker. context: a subclass
    of `Context` that implements it. It is pickled if rows run on workers."""

    @property
    def context(self) -> type[Any]: ...


@dataclass(frozen=True, slots=True)
class Draw:
    """The replicas of a run's calls, and the position of a node in the run.

    A call's position is that of its node, plus the number of calls that the node made before it in the same role and
    replica. It does not depend on which of several concurrent nodes is faster.

    Attributes:
        replica: for all calls; another number draws fresh samples wherever there is sampling.
        call_replicas: for the calls by position, in place of `replica`; the last one applies to all later calls. Runs
            with the same first replicas share their first calls, so each node of a tree of rollouts is paid once.
        position: of the node in the order of the schedule.
        order: of the node's span among those of the trace.
        variation: departure of the run from the workflow.
    """

    replica: int = 0
    call_replicas: tuple[int, ...] = ()
    position: int = 0
    order: tuple[int, ...] = ()
    variation: Variation | None = field(default=None, hash=False)

    def at(self, position: int) -> Draw:
        """Return the draw of a node of the workflow."""
        return replace(self, position=position, order=(position,))

    def child(self, replica: int, number: int) -> Draw:
        """Return the draw of an inner node. number: children of the same replica that ran before it."""
        return Draw(
            self.replica * STRIDE + replica,
            tuple(own * STRIDE + replica for own in self.call_replicas),
            self.position,
            (*self.order, replica, number),
            self.variation,
        )

    def of_call(self, number: int, replica: int) -> int:
        """Return the replica of a call. number: calls that the node made before it; replica: among the node's own."""
        own = self.replica
        if self.call_replicas:
            own = self.call_replicas[min(self.position + number, len(self.call_replicas) - 1)]
        return own * STRIDE + replica


#: Replica 0 of everything.
FIRST_DRAW = Draw()
