"""Checks that only `api_base` and `api_key_env` set the address and the key of requests.

LiteLLM and DSPy take both from other places, too, and send the provider's usual key to any address that they find. So
settings with an address or a secret elsewhere are refused: the check that keeps usual keys from an `api_base` would not
see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import walk
from workbench.errors import SpecError
from workbench.lm import is_loopback

_KEYS = ("api_key", "azure_ad_token", "azure_ad_token_provider")
#: LiteLLM reads texts with these prefixes as names of secrets, e.g. in environment variables.
_SECRET = ("os.environ/", "oidc/")

#: Providers for which LiteLLM takes a token from the environment, from files or from a login, even if it is given
#: another key, and sends it to the given address.
_OWN_CREDENTIALS = {"watsonx", "watsonx_text", "vertex_ai", "vertex_ai_beta", "gigachat", "sagemaker", "sagemaker_chat"}


def check_addresses(model: str, extra: Mapping[str, Any], api_base: str | None = None) -> None:
    """Raise SpecError for an address or a key outside `api_base` and `api_key_env`, and for an `api_base` that would be
    sent other credentials. Addresses within headers and messages are data."""
    if "://" in model:
        raise SpecError(f"'{model}' contains an address", hint="Write it as api_base, under lm.", path=("model",))
    providers = {str(extra.get("custom_llm_provider")), model.partition("/")[0]}
    if api_base and not is_loopback(api_base) and (own := providers & _OWN_CREDENTIALS):
        raise SpecError(
            f"LiteLLM sends credentials of this machine to the api_base of {min(own)}, also without a key",
            hint="Set the address in the environment, by the provider's variable for it.",
            path=("api_base",),
        )
    for key, value in extra.items():
        if key in ("api_base", "base_url") or (isinstance(value, str) and "://" in value):
            hint = "Write api_base under lm: no key is sent there that api_key_env does not name."
            raise SpecError(f"'{key}' is an address, which cannot be set under extra", hint=hint, path=("extra", key))
        if key in _KEYS or any(isinstance(part, str) and part.strip().startswith(_SECRET) for part in walk(value)):
            hint = "Write api_key_env under lm, with the name of the variable for the key."
            raise SpecError(f"'{key}' is a secret, which cannot be set under extra", hint=hint, path=("extra", key))
