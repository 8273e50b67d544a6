"""Access control of the gateway: a secret in the path or in a header, no requests from web pages, and environment
variables that give an agent its secret."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import SpecError
from workbench_external.gateway.asks import GatewaySession, Refused
from workbench_external.gateway.responses import StoredAnswers
from workbench_external.gateway.returned import ReturnedTurns

if TYPE_CHECKING:
    from multidict import MultiMapping

#: Prefix of our secrets. A key in a header that begins with it is never a provider's.
PREFIX = "sk-workbench-"
#: Maximum concurrent requests of one secret.
MAX_AT_ONCE = 4096

#: Headers with keys, in order of precedence.
_KEYS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key")
_SECRET = re.compile(r"[A-Za-z0-9_-]{24,200}")


@dataclass(eq=False, slots=True)
class Admitted:
    """An admitted client: the session, its requests in flight, the answers that it may refer to, and turns of models as
    their providers want them back.

    requests: the end of each, by its task. dismissed: its secret is no longer valid.
    """

    session: GatewaySession
    requests: dict[asyncio.Task[Any], asyncio.Future[None]] = field(default_factory=dict)
    dismissed: bool = False
    stored: StoredAnswers = field(default_factory=StoredAnswers)
    returned: ReturnedTurns = field(default_factory=ReturnedTurns)


class Door:
    """The valid secrets. They are looked up by their digest, so that the time of a look-up reveals nothing."""

    def __init__(self) -> None:
        self._admitted: dict[bytes, Admitted] = {}

    def admit(self, session: GatewaySession, secret: str | None) -> str:
        """Admit a session, and return its secret. Raises SpecError if it is too short, unfit for a URL, or in use."""
        made = PREFIX + secrets.token_urlsafe(32) if secret is None else secret
        if not _SECRET.fullmatch(made):
            raise SpecError(
                "the secret of a gateway has 24 to 200 letters, digits, '-' and '_'",
                hint='Write, say, the output of: python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
        if _digest(made) in self._admitted:
            raise SpecError("this secret is already in use", hint="Give each session a secret of its own.")
        self._admitted[_digest(made)] = Admitted(session)
        return made

    def dismiss(self, secret: str) -> Admitted | None:
        """Revoke a secret, and return the client that had it."""
        if (found := self._admitted.pop(_digest(secret), None)) is not None:
            found.dismissed = True
        return found

    def dismiss_all(self) -> list[Admitted]:
        """Revoke all secrets, and return the clients that had them."""
        found, self._admitted = [*self._admitted.values()], {}
        for who in found:
            who.dismissed = True
        return found

    def everybody(self) -> list[Admitted]:
        return [*self._admitted.values()]

    def find(self, in_path: str | None, headers: MultiMapping[str], in_query: Sequence[str] = ()) -> Admitted:
        """Find the client of a request, by the path or else by its keys. Raises Refused (401).

        in_query: keys in the query (`?key=`, as Google's clients may send it).

        An unknown key is ignored if the path has a valid secret: an agent may have a key of its own in its
        configuration. A key of another session, or a former one, is refused.
        """
        keys = [*_keys(headers), *in_query]
        shown = [in_path, *keys] if in_path is not None else [key for key in keys if self._is_ours(key)]
        found = self._admitted.get(own := _digest(shown[0])) if shown else None
        if found is None:
            raise Refused(401, "auth", "This gateway does not know the secret, or its session has ended.")
        if any(key != shown[0] and _digest(key) != own and self._is_ours(key) for key in keys):
            raise Refused(401, "auth", "The request shows secrets of two sessions. Send one of them.")
        return found

    def _is_ours(self, key: str) -> bool:
        return key.startswith(PREFIX) or _digest(key) in self._admitted


def _keys(headers: MultiMapping[str]) -> list[str]:
    """Return all keys of a request. Raises Refused (400) for a repeated header, as it is unclear which one counts."""
    found: list[str] = []
    for name in _KEYS:
        values = headers.getall(name, ())
        if len(values) > 1:
            raise Refused(400, "bad_request", f"The header {name} is there more than once. Send it once.")
        for value in values:
            kind, _, token = value.strip().partition(" ")
            key = value.strip() if name != "Authorization" else token.strip() if kind.lower() == "bearer" else ""
            found += [key] if key else []
    return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def in_address(host: str) -> str:
    """Return a host as written in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def own_names(host: str, port: int) -> frozenset[str]:
    """List the names by which a client on this machine may address a gateway that listens there."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", host.lower()))


def check_sender(headers: Mapping[str, str], names: Collection[str] | None) -> None:
    """Raise Refused (403) for a request that a browser may have sent for another site's page.

    names: of the gateway, with its port; None if other machines may reach it, by any name.

    A page whose own name was made to point here (DNS rebinding) still sends that name as the host. A page that calls
    127.0.0.1 itself is recognized by its origin; agents send none.
    """
    if names is not None and headers.get("Host", "").lower() not in names:
        raise Refused(403, "forbidden", "This gateway answers only to its own address on this machine.")
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise Refused(403, "forbidden", "This gateway answers no web page.")


#: Variables that stock clients read, by provider: {url} is the address with the secret and without the API's own path.
#: The ones after the first three providers are only set if an agent has some of them: their presence alone makes
#: frameworks choose a provider.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "openai": {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "{secret}"},
    "anthropic": {
        "ANTHROPIC_BASE_URL": "{url}",
        "ANTHROPIC_API_BASE": "{url}",  # LiteLLM reads it first
        "ANTHROPIC_API_KEY": "{secret}",
        "ANTHROPIC_AUTH_TOKEN": "{secret}",
    },
    "google": {  # the second is LiteLLM's
        "GOOGLE_GEMINI_BASE_URL": "{url}",
        "GEMINI_API_BASE": "{url}/v1beta",
        "GEMINI_API_KEY": "{secret}",
    },
    "azure": {"AZURE_OPENAI_ENDPOINT": "{url}", "AZURE_OPENAI_API_KEY": "{secret}"},
    "litellm azure": {"AZURE_API_BASE": "{url}", "AZURE_API_KEY": "{secret}"},
    "litellm vllm": {"HOSTED_VLLM_API_BASE": "{url}/v1", "HOSTED_VLLM_API_KEY": "{secret}"},
    "litellm openrouter": {"OPENROUTER_API_BASE": "{url}/v1", "OPENROUTER_API_KEY": "{secret}"},
    "litellm deepseek": {"DEEPSEEK_API_BASE": "{url}/v1", "DEEPSEEK_API_KEY": "{secret}"},
}
ALWAYS = ("openai", "anthropic", "google")


def variables_for(url: str, secret: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that point an agent to the gateway. inherited: the rest of its environment.

    No proxy is used to reach this machine: NO_PROXY is the inherited value, and loopback.
    """
    found: dict[str, str] = {}
    for provider, names in VARIABLES.items():
        if provider in ALWAYS or names.keys() & inherited.keys():
            found |= {name: form.format(url=url, secret=secret) for name, form in names.items()}
    if secret not in url:  # Google's clients prefer it to the other, and some read only it
        found["GOOGLE_API_KEY"] = secret
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, (inherited.get(name), "127.0.0.1,localhost")))
    return found
