"""Which samples a run of a workflow draws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from workbench.runtime.repair import Repairs
from workbench.spec import AttackSpec

#: Replicas of a child or a call are numbered within those of what makes it.
STRIDE = 1000


@dataclass(frozen=True, slots=True)
class Draw:
    """The replicas of the calls of a run, and where in the run a node stands.

    A call's position in the run is that of its node, plus the number of calls that the node made before it in the same
    role and replica. It does not depend on which of several concurrent nodes is faster.

    Attributes:
        replica: of all calls; another number draws fresh samples wherever there is sampling.
        call_replicas: of the calls by position, in place of `replica`; the last one holds for all later calls. Runs
            with the same first replicas share their first calls, so each node of a tree of rollouts is paid once.
        position: of the node in the order of the schedule.
        order: of the node's span among those of the trace.
        repairs: what takes the place of single steps; they change no key of any other call.
        attack: what strangers put into the run.
    """

    replica: int = 0
    call_replicas: tuple[int, ...] = ()
    position: int = 0
    order: tuple[int, ...] = ()
    repairs: Repairs = field(default_factory=dict, hash=False)
    attack: AttackSpec | None = field(default=None, hash=False)

    def at(self, position: int) -> Draw:
        """That of a node of the workflow."""
        return replace(self, position=position, order=(position,))

    def child(self, replica: int, number: int) -> Draw:
        """That of an inner node. number: how many children of the same replica ran before it."""
        return Draw(
            self.replica * STRIDE + replica,
            tuple(own * STRIDE + replica for own in self.call_replicas),
            self.position,
            (*self.order, replica, number),
            self.repairs,
            self.attack,
        )

    def of_call(self, number: int, replica: int) -> int:
        """The replica of a call. number: how many calls the node made before it; replica: among the node's own."""
        own = self.replica
        if self.call_replicas:
            own = self.call_replicas[min(self.position + number, len(self.call_replicas) - 1)]
        return own * STRIDE + replica


#: Replica 0 of everything.
FIRST_DRAW = Draw()
