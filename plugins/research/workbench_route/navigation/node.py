"""`navigate`: a small learned network reads fields of the partial solution and chooses what comes next.

Source: RL of Thoughts (Hao et al., arXiv 2505.14140). Departures, with reasons, are in the README.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.errors import SpecError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind, parse_signature
from workbench_route.navigation.navigator import Navigator, StateSpace, hidden_units, refuse_images


class NavigateConfig(NodeConfig):
    """Settings of a `navigate` node."""

    signature: str = Field(
        description="the fields that it reads, with their types, and the one that it writes, a Literal of the choices"
    )
    learned: str = Field(
        "", description="what the optimizer `navigate` has learned, as JSON; empty: always the first choice"
    )
    explore: float = Field(
        0.0, ge=0, le=1, description="share of choices that are drawn at random; the optimizer sets it to learn"
    )


class Navigate(NodeKind):
    """Writes one of several values into a field, by a learned network. A `branch` on the field runs what was chosen."""

    Config = NavigateConfig
    primary = "signature"
    learnable = {"learned": "navigator"}
    config: NavigateConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        self._check_signature()
        self.navigator  # what was learned is checked when the file is read  # noqa: B018

    def _check_signature(self) -> None:
        written = self.signature.outputs
        if len(written) != 1 or len(written[0].values) < 2:
            raise SpecError(
                "a navigator writes one field, a Literal of at least two values",
                hint="Write e.g. navigate: \"right: int, close: int -> block: Literal['reason', 'refine', 'stop']\".",
                path=("signature",),
            )
        if not self.signature.inputs:
            raise SpecError(
                "a navigator without inputs always makes the same choice",
                hint="Name the fields that describe the partial solution before the arrow.",
                path=("signature",),
            )
        refuse_images(self.signature.inputs)
        hidden_units(self.space.size, len(self.choices))

    @cached_property
    def space(self) -> StateSpace:
        return StateSpace(self.signature.inputs)

    @property
    def choices(self) -> list[Any]:
        """Return the values that it chooses from."""
        return list(self.signature.outputs[0].values)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.signature.inputs)

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {field.name: field.type for field in self.signature.inputs}

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.signature.outputs[0].name,)

    @cached_property
    def navigator(self) -> Navigator | None:
        """Return the learned navigator; None if there is none. Raises SpecError if it belongs to another signature."""
        if not self.config.learned.strip():
            return None
        found, choices = Navigator.parse(self.config.learned), [str(choice) for choice in self.choices]
        if (found.inputs, found.choices) != ([*self.inputs], choices) or len(found.center) != self.space.size:
            learned_for = f"{', '.join(found.inputs)} -> {', '.join(found.choices)} ({len(found.center)} features)"
            raise SpecError(
                f"this navigator was learned for {learned_for}, and the node has {', '.join(self.inputs)} -> "
                f"{', '.join(choices)} ({self.space.size} features)",
                hint="Run the optimizer `navigate` again, or leave `learned` out.",
                path=("learned",),
            )
        return found

    def warnings(self) -> list[str]:
        if self.navigator is None and not self.config.explore:
            return [
                f"'{self.name}' has learned nothing yet: it always chooses {self.choices[0]}. The optimizer `navigate` "
                "learns when to choose what: name it under optimize:, and run `workbench optimize`."
            ]
        return []

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        features, values = self.space.encode(inputs), [0.0] * len(self.choices)
        if self.navigator is not None:
            values = self.navigator.values(features)
            shown = zip(self.navigator.choices, (round(value, 4) for value in values), strict=True)
            ctx.note(values=dict(shown))
        chosen = max(range(len(values)), key=lambda i: (values[i], -i))
        if self.config.explore:
            # The same run, resumed, draws the same numbers; another round or replica draws others.
            rng = random.Random(f"{ctx.example} {ctx.node} {ctx.draw.replica} {ctx.draw.order}")
            if rng.random() < self.config.explore:
                chosen = rng.randrange(len(values))
            ctx.note(features=features, chosen=chosen)
        return {self.outputs[0]: self.choices[chosen]}
