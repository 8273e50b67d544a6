"""The page "Works with", from the dialects of the lab that the tests hold to be true."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from tests.dialects.declared import DIALECTS  # noqa: E402
from tests.dialects.dialect import CONSUMERS, KEY_VARIABLE, Dialect  # noqa: E402

_INTRO = """# Works with

Servers whose way of speaking is played in the tests ([`tests/dialects`](../../tests/dialects/__init__.py)). Each is
written from the public page that it links to and from what users report of its errors, refuses what the real one
refuses, and answers the planted task of a model that knows the right answer and thinks of the wrong one first. The date
is the day on which the page was read, at least in part. A "specification" is its maker's, of the API; a "source" is
that of the server or of its maker's client, at the version that is named. No real server was asked.

Servers are asked by chat completions, and through the provider `litellm` in forms of their own. OpenAI's Responses are
for agents behind [the gateway](gateway.md), which asks the model's server in that server's form.

HOST is the name of the server, with its port, and MY_KEY the variable of the environment that holds your key.
"""
_OPENAI = ("openai", "openai-reasoning")
_MATRIX = """## What works

Each part of the product that asks a model was run against each of them. "Yes" means the right answer on every row. "No"
means that the product fails and says why; the words stand below. In the last column, "none" means that the server
gives no log-probabilities, which rollouts of the model in training need.
"""


def works_with() -> str:
    """The page. Starts no server."""
    lines = [_INTRO, "## Servers\n", "| server | read | write | what is special |", "|---|---|---|---|"]
    for one in DIALECTS.values():
        lines.append(f"| [{one.title}]({one.page}) | {one.read} | {_settings(one)} | {one.speaks} |")
    lines += ["", _MATRIX, f"| server | {' | '.join(CONSUMERS.values())} |", "|---" * (len(CONSUMERS) + 1) + "|"]
    lines += [f"| {one.title} | {' | '.join(_cell(one, name) for name in CONSUMERS)} |" for one in DIALECTS.values()]
    lines += ["", "## Refusals\n", "| server | part | what the product says |", "|---|---|---|"]
    for one in DIALECTS.values():
        lines += [f"| {one.title} | {CONSUMERS[name]} | ... {words} ... |" for name, words in one.stated.items()]
    lines += ["", f"{len(DIALECTS)} servers; {len(CONSUMERS)} parts of the product."]
    return "\n".join(lines) + "\n"


def _settings(dialect: Dialect) -> str:
    """What to write for a server: its address, unless the model's prefix means it, and then the key's variable."""
    path, _, query = dialect.base.partition("?")
    written = [f"`model: {dialect.model}`"]
    named = dialect.model.startswith(("openai/", "local/")) and dialect.name not in _OPENAI
    if named or path != "/v1" or query:
        path = path if path or not named else "/chat/completions"
        scheme = "https" if dialect.hosted else "http"
        written.append(f"`api_base: {scheme}://HOST{path}{'?' if query else ''}{query}`")
    if named and dialect.hosted and not dialect.key_header:
        written.append("`api_key_env: MY_KEY`")
    for name, value in dialect.settings.items():
        written.append(f"`{name}: {_yaml(value)}`".replace(KEY_VARIABLE, "MY_KEY"))
    return ", ".join(written)


def _yaml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml(one)}" for name, one in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(dialect: Dialect, consumer: str) -> str:
    if consumer in dialect.stated:
        return "no"
    if consumer == "probabilities":
        return "yes" if dialect.logprobs else "none"
    return "yes, without tools" if dialect.no_tools and consumer.startswith("gateway") else "yes"
