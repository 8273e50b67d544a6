"""DSPy's native client of language models: which models it serves, with which keys, and its errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

# Both DSPy and LiteLLM download their price tables on first use; the shipped ones are enough.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import dspy

from workbench.errors import PluginError
from workbench_dspy_seam.programs import CLIENT_KEYS

try:
    from dspy import lm15
    from dspy.clients.backend_selection import select_backend
    from dspy.utils import exceptions as errors
except ImportError as error:
    raise PluginError(f"DSPy {version('dspy')} has no {error.name}: install dspy 3.4") from None

__all__ = ["CLIENT_KEYS", "errors", "lm15"]


def native_provider(lm: dspy.LM) -> str | None:
    """Return the provider as which DSPy's own client serves a model; None if LiteLLM serves it."""
    selection: Any = select_backend(lm)
    return str(selection.resolution.provider) if selection.native and selection.resolution else None


def key_variables(provider: str) -> tuple[str, ...]:
    """Return the environment variables that the native client reads a provider's key from; empty if it needs none."""
    from dspy._vendor.lm15.registry import lookup

    definition: Any = lookup(provider)
    return tuple(definition.env_keys) if definition else ()


def native_prefixes() -> set[str]:
    """Return the prefixes of model strings that the native client serves."""
    from dspy._vendor.lm15.router import LITELLM_PROVIDER_PREFIXES

    return set(LITELLM_PROVIDER_PREFIXES)


def message_to_json(message: lm15.Message) -> dict[str, Any]:
    """Convert a provider's message completely, with the signatures that it wants back."""
    from dspy._vendor.lm15.serde import message_to_dict

    return message_to_dict(message)


def message_from_json(value: Mapping[str, Any]) -> lm15.Message:
    from dspy._vendor.lm15.serde import message_from_dict

    return message_from_dict(dict(value))


def http_parser() -> tuple[Any, type[Exception]]:
    """Return (the class that chooses the decoder of a body, the error for a malformed one) of the native client.

    Raises PluginError for a version of DSPy that reads answers differently.
    """
    try:
        from dspy._vendor.lm15.transports import ProtocolError, _http11

        parser = _http11.ResponseHeadParser
        if hasattr(parser, "body_decoder") and hasattr(parser, "_framing_decoder"):
            return parser, ProtocolError
    except (ImportError, AttributeError):
        pass
    raise PluginError(f"DSPy {version('dspy')} has no place for a bound of bodies: install dspy 3.4")
