"""A simulated user for an agent: a language model of the role `user` that knows facts that the agent must find out.

Source: MUA-RL (arXiv 2508.18669), where a model plays the user while an agent is trained, and tau-bench (arXiv
2406.12045). The user's replies reach the agent as user messages, so that training masks them like results of tools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import NodeError, SpecError
from workbench.runtime import Context
from workbench_kit.answers import answer_text
from workbench_kit.prompting import plain_adapter as plain

#: Appended to the agent's rules.
RULES = """
To say something to the user, answer with exactly one line:
say: TEXT
You will then be told what the user says."""

_PLAY = (
    "You play a user who talks to an assistant. Say one short thing at a time, as a person would. Tell only what you "
    "are asked for, and nothing that you do not know. When you have what you came for, or when it cannot be had, say "
    "DONE."
)

#: Ends the conversation: as a whole word.
_DONE = re.compile(r"(?<!\w)DONE(?!\w)")
#: Maximum number of tokens of a user message, unless the role sets another number.
MAX_TOKENS = 200


class UserConfig(BaseModel):
    """Settings of the simulated user of an agent."""

    model_config = ConfigDict(extra="forbid")

    knows: list[str] = Field(default_factory=list, description="fields of the row that only the user sees")
    instructions: str = Field("", description="the user's character and goal")


def extract_user_message(text: str, outputs: Collection[str]) -> str | None:
    """Return the message to the user in the agent's reply, alone or after a thought; None for any other reply."""
    return answer_text(text, outputs)


class SimulatedUser:
    """A conversation with the user. opening: the user's first message, if any."""

    def __init__(self, config: UserConfig, inputs: Mapping[str, Any], opening: str):
        self.config = config
        known = [f"{name}: {plain.as_text(inputs.get(name, ''))}" for name in config.knows]
        play = "\n".join([_PLAY, config.instructions, *known])
        self._messages: list[dict[str, str]] = [{"role": "system", "content": play.replace("\n\n", "\n").strip()}]
        if opening.strip():
            # Chat templates require alternating turns that begin with the other side.
            self._messages += [
                {"role": "user", "content": "How can I help you?"},
                {"role": "assistant", "content": opening},
            ]

    async def replies(self, said: str, ctx: Context) -> tuple[str, bool]:
        """Return (the user's reply, whether the conversation is over). Raise SpecError if `user` has no model."""
        spec = ctx.program.runtime.roles.get("user")
        if spec is None:
            raise SpecError(
                "an agent with `user` needs a model that plays the user",
                hint="Write e.g. roles: {user: openai/gpt-4.1}.",
                path=("roles",),
            )
        self._messages.append({"role": "user", "content": said})
        response = await ctx.complete(self._messages, lm=spec, role="user", max_tokens=spec.max_tokens or MAX_TOKENS)
        if response.finish in ("refusal", "empty"):
            raise NodeError("user", f"the model that plays the user gave no text ({response.finish})")
        self._messages.append({"role": "assistant", "content": response.text})
        ctx.note(user=[*ctx.span.notes.get("user", []), {"told": said[:500], "said": response.text[:500]}])
        return _DONE.sub("", response.text).strip(), _DONE.search(response.text) is not None
