"""What the page "Works with" says to write reaches the server that it is about, with that server's key."""

from __future__ import annotations

import re

import pytest
import yaml
from docs.writers.works_with import works_with
from tests.dialects.declared import DIALECTS

from workbench.spec import lm_spec
from workbench_openai import client

ROWS = dict(re.findall(r"^\| \[(.+?)\]\(.+?\) \| [^|]+ \| (.+?) \| .+ \|$", works_with(), re.M))
OURS = {one.title: one for one in DIALECTS.values() if one.model.startswith(("openai/", "local/"))}


@pytest.mark.parametrize("title", OURS)
def test_nu12_what_is_written_reaches_the_server(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key of OpenAI")
    monkeypatch.setenv("MY_KEY", "key of the server")
    dialect, written = OURS[title], re.findall(r"`([^`]+)`", ROWS[title])
    spec = lm_spec(yaml.safe_load("\n".join(written)))
    lm = getattr(client, spec.model.partition("/")[0])(spec.model.partition("/")[2], spec)
    theirs = title not in ("OpenAI, chat completions", "OpenAI, models that think")
    base, _, query = dialect.base.partition("?")
    assert str(lm._url).lower() == (
        f"http{'s' * dialect.hosted}://{'host' if theirs else 'api.openai.com'}{base}/chat/completions"
        + f"?{query}" * bool(query)
    )
    own_header = (spec.extra or {}).get("headers", {})
    sent = None if own_header or not dialect.hosted else "key of the server" if theirs else "key of OpenAI"
    assert lm._server.key() == sent and list(own_header) == [dialect.key_header] * bool(dialect.key_header)
