"""The language models of a worker: its own, and stand-ins for those of the driver."""

from __future__ import annotations

from workbench.errors import LMError
from workbench.lm import LM, LMPool, Request, Response
from workbench.spec import LMSpec
from workbench_workers.messages import ModelFacts


class OfDriver(LM):
    """A language model that the driver calls."""

    def __init__(self, facts: ModelFacts):
        self.identity, self.concurrency = facts.identity, facts.concurrency
        self.reads_images, self.apis = facts.reads_images, facts.apis

    async def complete(self, request: Request) -> Response:
        raise LMError("provider", f"{self.identity} answers on the driver alone")

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return None

    async def aclose(self) -> None:
        """Nothing to close: it belongs to the driver."""


class WorkerPool(LMPool):
    """The language models of a worker: its own, made of their settings, and those of the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.of_driver: dict[str, LM] = {}

    def get(self, spec: LMSpec) -> LM:
        known = self.of_driver.get(self.key(spec)) if self.of_driver else None
        return known or super().get(spec)
