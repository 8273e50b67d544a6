"""What holds for all LM providers together: registration, start-up cost, and the real settings."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from workbench.plugins import Plugins
from workbench.spec import LMSpec

NAMES = ["hf", "litellm", "llm", "nano", "openai"]
PREFIXES = ["*", "anthropic", "bundled", "gemini", "hf", "hosted_vllm", "litellm", "llm", "local", "ollama", "openai"]


@pytest.fixture
def providers():
    return Plugins(extra=[(name, importlib.import_module(f"workbench_{name}")) for name in NAMES])


def test_prefixes(providers):
    assert providers.set_aside == {}
    assert providers.names("lms") == PREFIXES


@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm", "ollama", "local", "bundled"])
def test_real_settings_are_taken(providers, prefix):
    spec = LMSpec.model_validate({"model": f"{prefix}/nano", "price": {"input": 1, "output": 2}})
    lm = providers.get("lms", prefix)("nano", spec)
    assert lm.identity and lm.concurrency == 16
    assert lm.price(10**6, 10**6) == (0.0 if prefix == "bundled" else pytest.approx(3.0))


def test_registering_imports_nothing_heavy():
    code = (
        f"import sys; names = {NAMES!r}; [__import__('workbench_' + name) for name in names];"
        "heavy = {'aiohttp', 'dspy', 'litellm', 'llm', 'torch', 'transformers', 'numpy'};"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
