"""First-thought prefix: an agent's first answer continues the first step of an answer without tools.

Source: Agent Distillation (Kang et al., arXiv 2505.17612), as in the authors' code at
github.com/Nardien/agent-distillation (`build_prefix_memory.py`: "Thought: ", and the chain-of-thought answer up to its
first empty line). Departure: the answer is stopped at that line, since the rest is thrown away.
"""

from __future__ import annotations

from typing import Any

from workbench.runtime import Context
from workbench.spec import LMSpec

_STEP_BY_STEP = "Think step by step."


async def think_first(head: str, question: str, ctx: Context, lm: LMSpec | None, **settings: Any) -> str:
    """Return the first words of the agent's first answer; "" if the model wrote no step.

    Args:
        head: instructions and form of the answer, without tools.
        question: the user's message.
        lm, settings: as for `Context.complete`.
    """
    messages = [{"role": "system", "content": f"{head}\n{_STEP_BY_STEP}"}, {"role": "user", "content": question}]
    spec = lm or ctx.program.runtime.lm_spec("task", ctx.program.workflow)
    response = await ctx.complete(messages, lm=spec, role="thought", stop=("\n\n",), **settings)
    step = response.text.strip().split("\n\n")[0].strip()
    return f"Thought: {step}\n\n" if step else ""
