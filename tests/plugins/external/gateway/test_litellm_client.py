"""LiteLLM, on which many agents stand, is led to the gateway by the variables that it reads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from tests.helpers.gateway_sessions import HELLO, ScriptedSession, opened

pytestmark = pytest.mark.slow

MODELS = (
    "openai/m",
    "anthropic/claude-m",
    "azure/m",
    "hosted_vllm/m",
    "openrouter/a/m",
    "deepseek/m",
)
_SCRIPT = """
import json, sys, litellm
found = {}
for model in sys.argv[1:]:
    try:
        asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], "num_retries": 0}
        answer = litellm.completion(**asked)
        found[model] = answer.choices[0].message.content
        parts = litellm.completion(**asked, stream=True)
        found[model] = [found[model], "".join(part.choices[0].delta.content or "" for part in parts)]
    except Exception as error:
        found[model] = repr(error)[:600]
print(json.dumps(found))
"""


def test_litellm_finds_the_gateway_for_each_provider() -> None:
    keys = ("AZURE_API_KEY", "HOSTED_VLLM_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY")
    inherited = {**os.environ, **dict.fromkeys(keys, "the-users-own"), "AZURE_API_VERSION": "2024-10-21"}

    async def main() -> Any:
        async with opened(ScriptedSession()) as (gateway, secret):
            environment = {**inherited, **gateway.environment(secret, inherited)}
            assert "the-users-own" not in environment.values()
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "ignore", "-c", _SCRIPT, *MODELS),
                env={**environment, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                stdout=asyncio.subprocess.PIPE,
            )
            return json.loads((await child.communicate())[0].splitlines()[-1])

    assert asyncio.run(main()) == {model: [HELLO.text, HELLO.text] for model in MODELS}
