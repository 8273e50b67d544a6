"""What OpenAI's client for JavaScript reads from the gateway. npm fetches it, from where it is set to look."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.helpers.gateway_sessions import CALLS, HELLO, ScriptedSession, opened

from workbench.errors import BudgetSpent
from workbench.lm import Response
from workbench_external.gateway import Ask, Refused

pytestmark = pytest.mark.slow

PACKAGE = "openai@7.57.0"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The client's module, unpacked; nothing of the package is run to install it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    done = subprocess.run(
        [npm, "pack", "--ignore-scripts", "--pack-destination", str(tmp_path), PACKAGE],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    files = list(tmp_path.glob("*.tgz"))
    if done.returncode or len(files) != 1:
        pytest.skip(f"npm did not download {PACKAGE}: {done.stderr[-200:]}")
    with tarfile.open(files[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "package" / "index.mjs"


class ByModel(ScriptedSession):
    """Answers by the name of the model."""

    async def complete(self, ask: Ask) -> Sequence[Response]:
        self.asked.append(ask)
        match ask.model:
            case "tools":
                return [CALLS]
            case "busy" if sum(one.model == "busy" for one in self.asked) == 1:
                raise Refused(429, "rate_limit", "Wait.", retry_after=0.05)
            case "spent":
                raise BudgetSpent("calls", 5, 6)
            case "wrong":
                raise Refused(400, "bad_request", "It is wrong.")
        return [HELLO]


def test_the_client_for_javascript_reads_all_that_it_asks_for(package: Path) -> None:
    session = ByModel()

    async def main() -> str:
        async with opened(session) as (gateway, secret):
            kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            child = await asyncio.create_subprocess_exec(
                "node",
                str(Path(__file__).with_name("gateway_client.mjs")),
                env={**kept, **gateway.environment(secret, {}), "OPENAI_PACKAGE": str(package)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await child.communicate()
            assert child.returncode == 0, err.decode()
            return out.decode()

    found = json.loads(asyncio.run(main()))
    assert found["whole"] == found["streamed"] == [HELLO.text, 18]
    assert found["calls"] == [["call_a", "add", {"a": 1, "b": 2}], ["call_b", "look", {"at": "the sky"}]]
    assert found["response"] == [HELLO.text, True]
    assert (found["events"][0], found["events"][-1]) == ("response.created", "response.completed")
    assert found["vectors"] == [[1.0, 0.5], [3.0, 0.5]] and found["models"] == ["small", "large"]
    assert found["again"] == HELLO.text
    assert found["spent"] == ["RateLimitError", 429, "insufficient_quota"]
    assert found["wrong"][:2] == ["BadRequestError", 400]
    asked = [ask.model for ask in session.asked]
    assert (asked.count("busy"), asked.count("spent"), asked.count("wrong")) == (2, 1, 1)
