"""Behavior of a model in chats, which belongs to its weights and not to the name under which they are called.

Training changes the name twice: rollouts ask `policy:KEY@STEP`, candidates `hf:FOLDER/HASH`, and an export
`openai/TASK`. Read off these, a model that thinks would lose the tokens for its thoughts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.runtime import spec_thinks
from workbench.spec import LMSpec, lm_spec


@dataclass(frozen=True)
class ChatBehavior:
    """Settings that calls of the same weights need under any name.

    thinks: whether it thinks before it answers. max_tokens: of its answers, where nodes name none. template: what its
    chat template is rendered with.
    """

    thinks: bool
    max_tokens: int | None
    template: Mapping[str, Any]

    @classmethod
    def of(cls, spec: LMSpec) -> ChatBehavior:
        return cls(spec_thinks(spec), spec.max_tokens, spec.extra.get("chat_template_kwargs") or {})

    def under(self, lm: Mapping[str, Any], *, template: bool = False) -> dict[str, Any]:
        """The settings `lm` of a model with another name, by which it speaks as this one.

        template: whether that name takes settings of the template; a policy in training has them already.
        """
        found = dict(lm)
        if self.max_tokens is not None:
            found["max_tokens"] = self.max_tokens
        if template and self.template:
            found["extra"] = {**found.get("extra", {}), "chat_template_kwargs": dict(self.template)}
        if spec_thinks(lm_spec({**found, "thinks": None})) != self.thinks:
            found["thinks"] = self.thinks
        return found
