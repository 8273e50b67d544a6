"""The context of a node in a replay, with some steps replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.lm import Message, Response
from workbench.runtime import Begun, Context, make_request
from workbench.spec import LMSpec
from workbench.workflow import CallRecord, NodeKind
from workbench_kit.credit.repair import FRESH, Address, Repair


@dataclass(frozen=True)
class Repaired:
    """A run with some of its steps replaced. repairs: by the address of the step; they change no key of other calls."""

    repairs: Mapping[Address, Repair]

    @property
    def context(self) -> type[Context]:
        return RepairedContext


class RepairedContext(Context):
    """A context that replaces steps by the repairs of its draw. Only replays create it."""

    @property
    def _repairs(self) -> Mapping[Address, Repair]:
        assert isinstance(self.draw.variation, Repaired)
        return self.draw.variation.repairs

    async def _outputs_of(self, node: NodeKind, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        repair = self._repairs.get((self.draw.order, 0))
        if repair is None or repair.outputs is None:
            return await super()._outputs_of(node, inputs)
        self._note_repair(0)
        return repair.outputs

    async def _ask(
        self,
        begun: Begun,
        spec: LMSpec,
        role: str,
        messages: Sequence[Message],
        replica: int,
        settings: Mapping[str, Any],
    ) -> Response:
        repair = self._repairs.get((self.draw.order, begun.number))
        if repair is None:
            return await super()._ask(begun, spec, role, messages, replica, settings)
        spec, replica = repair.lm or spec, replica + FRESH * repair.draw
        settings = repair.settings_of(settings, spec.temperature)
        self._note_repair(begun.number)
        if repair.response is None:
            return await super()._ask(begun, spec, "repair", messages, replica, settings)
        request = make_request(spec, messages, replica, settings)
        self._record(begun, CallRecord(request.messages, repair.response, "repair", spec.model, True, 0.0))
        return repair.response.without_thoughts()

    async def recorded(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run it again if one of its own calls is repaired; otherwise like `Context`."""
        if any(order == self.draw.order for order, _ in self._repairs):
            return await run()
        return await super().recorded(kind, content, run)

    def _place_of_effect(self) -> list[Any]:
        # After a repair, tools may answer differently, so their recorded results are not reused.
        return [*super()._place_of_effect(), *self.trace.repaired]

    def _note_repair(self, number: int) -> None:
        self.trace.repaired.append(f"{self.draw.order} {number} {self._repairs[self.draw.order, number].key}")
