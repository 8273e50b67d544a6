"""DSPy's contract of 3.5 in the process of a test: the installed DSPy, strict about what 3.5 took away.

Written from DSPy's guides: "The DSPy LM contract (3.5)" (docs/docs/community/normalized-lm-api-migration.md) for
`Prompt`, `lm.generate`, what `lm(request)` takes, and how an adapter calls; "Upgrading from DSPy 3.4.1 to 3.5"
(dspy.ai/current/community/upgrading-to-3-5) for the default adapter and for LiteLLM, which is optional.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from typing import Any

import dspy
import dspy.adapters
import pytest
from dspy import lm15
from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.clients.base_lm import BaseLM

_EXECUTION = {"cache", "rollout_id"}


@dataclass(frozen=True)
class Prompt:
    """What an adapter renders."""

    system: Any
    messages: tuple[Any, ...]

    def __post_init__(self) -> None:
        assert self.system is None or isinstance(self.system, str | tuple), self.system
        assert all(isinstance(message, lm15.Message) for message in self.messages), self.messages


class _Blocked(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "litellm":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


@contextmanager
def without_litellm() -> Iterator[None]:
    """LiteLLM cannot be imported; nor does it stand among the modules that were."""
    held = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "litellm"}
    blocked = _Blocked()
    sys.meta_path.insert(0, blocked)
    try:
        yield
    finally:
        sys.meta_path.remove(blocked)
        sys.modules.update(held)


def obey_35(patch: pytest.MonkeyPatch) -> None:
    """Make the installed DSPy one of 3.5, for a test."""
    patch.setattr(dspy.adapters, "Prompt", Prompt, raising=False)
    for kind in (dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter):
        patch.setattr(kind, "format", _renders(kind.format))
    patch.setattr(dspy.Adapter, "__call__", _call)
    patch.setattr(dspy.Adapter, "acall", _acall)
    patch.setattr(BaseLM, "__call__", _only_requests(BaseLM.__call__))
    patch.setattr(BaseLM, "acall", _only_requests(BaseLM.acall))
    patch.setattr(BaseLM, "generate", lambda self, request, n=1: [self(request) for _ in range(n)], raising=False)
    default: Any = lambda: dspy.XMLAdapter(use_native_function_calling=True)  # noqa: E731
    patch.setattr("dspy.predict.predict.ChatAdapter", default)


def _renders(format_34: Any) -> Any:
    def format(self: Any, signature: Any, demos: Any, inputs: Any) -> Prompt:
        request = lm15.request_from_openai_chat({"model": "any", "messages": format_34(self, signature, demos, inputs)})
        return Prompt(request.system, request.messages)

    return format


def _only_requests(call_34: Any) -> Any:
    def call(self: Any, prompt: Any = None, *, messages: Any = None, **more: Any) -> Any:
        if messages is not None:
            raise TypeError("lm(messages=...) is gone in 3.5")
        if isinstance(prompt, lm15.Request) and more.keys() - _EXECUTION - CLIENT_KEYS:
            raise TypeError(f"lm(request) takes no generation options: {sorted(more)}")
        return call_34(self, prompt, **more)

    return call


def _planned(self: Any, lm: Any, options: dict[str, Any], signature: Any, demos: Any, inputs: Any) -> tuple[Any, Any]:
    shown = self._call_preprocess(lm, options, signature, inputs)
    prompt = self.format(shown, demos, inputs)
    if not isinstance(prompt, Prompt):
        raise TypeError(f"{type(self).__name__}.format gave {type(prompt).__name__}, not a Prompt")
    given = {**lm.kwargs, **options}
    kept = {k: v for k, v in given.items() if v is not None and k not in {"n", *_EXECUTION} | CLIENT_KEYS}
    read = lm15.request_from_openai_chat({"model": lm.model, "messages": [{"role": "user", "content": "."}], **kept})
    return shown, lm15.Request(model=lm.model, messages=prompt.messages, system=prompt.system, config=read.config)


def _read(self: Any, lm: Any, options: Any, shown: Any, signature: Any, answers: list[Any]) -> Any:
    return self._call_postprocess(shown, signature, [{"text": one.text} for one in answers], lm, options)


def _call(self: Any, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> Any:
    shown, request = _planned(self, lm, lm_kwargs, signature, demos, inputs)
    return _read(self, lm, lm_kwargs, shown, signature, lm.generate(request))


async def _acall(self: Any, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> Any:
    shown, request = _planned(self, lm, lm_kwargs, signature, demos, inputs)
    return _read(self, lm, lm_kwargs, shown, signature, [await lm.acall(request)])
