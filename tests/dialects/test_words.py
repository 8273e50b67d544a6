"""How each dialect says that an answer was cut or refused, and that a request failed; thoughts change no score."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.conftest import THOUGHTLESS
from tests.dialects.consumers import EXAMPLES, has_right_label, run_row, running, workflow_of
from tests.dialects.declared import DIALECTS
from tests.dialects.dialect import Dialect
from tests.dialects.planted import CUT, FORBIDDEN, MISLED
from tests.dialects.server import Lab
from workbench.errors import LMError, NodeError
from workbench.lm import Request
from workbench.study import Evaluator
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, node_tree
from workbench_openai import wire

ERRORS = [json.loads(line) for line in (Path(__file__).parent / "documented_errors.jsonl").read_text().splitlines()]


def read_error(status: int, body: Any) -> str:
    """What the client makes of an error, or of an answer with one in it."""
    raw, asked = body.encode() if isinstance(body, str) else json.dumps(body).encode(), Request(())
    try:
        if status == 200:
            return wire.parse_body(raw, asked, lambda *tokens: 0.0).finish
        return wire.refusal_or_error(status, {}, raw, asked).finish
    except LMError as error:
        return error.kind


def test_documented_errors_mean_what_they_say(subtests: pytest.Subtests) -> None:
    for error in ERRORS:
        with subtests.test(error=error):
            assert error["dialect"] in DIALECTS
            assert read_error(error["status"], error["body"]) == {"refused": "refusal"}.get(
                error["kind"], error["kind"]
            )


def test_faults_in_words_alone_are_tried_again_as_what_they_are(subtests: pytest.Subtests) -> None:
    for status, body, kind in [
        (200, {"error": "Rate limit exceeded, try again"}, "rate_limit"),
        (200, {"message": "Too many requests"}, "rate_limit"),
        (200, {"detail": "Internal server error"}, "server"),
        (200, {"error": {"message": "Provider is temporarily unavailable"}}, "server"),
        (500, {"error": {"message": "Rate limit reached for this key"}}, "rate_limit"),
        (400, {"message": "Request was throttled. Expected available in 3 seconds."}, "rate_limit"),
        (403, {"message": "rate limits are not yours to see"}, "auth"),
        (499, "", "server"),
        (529, "<html>overloaded</html>", "server"),
    ]:
        with subtests.test(status=status, body=body):
            assert read_error(status, body) == kind


async def tell(dialect: Dialect, lab: Lab, folder: Path, text: str) -> ExampleRun:
    """A run of a node that writes a free text. Raises what it failed with."""
    workflow = Workflow({"nodes": {"tell": node_tree({"predict": "text -> story"})}}, folder)
    workflow.check()
    async with running(dialect, lab) as runtime:
        return await run_row(runtime, workflow, text)


def test_a_refusal_is_one_in_every_dialect(lab: Lab, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate([name for name, d in DIALECTS.items() if d.ends.get("refusal") != ""]):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(NodeError) as caught:
                asyncio.run(tell(DIALECTS[name], lab, folder, FORBIDDEN))
            assert caught.value.kind == "refused"


def test_a_cut_answer_is_cut_in_every_dialect(lab: Lab, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate(DIALECTS):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(NodeError) as caught:
                asyncio.run(tell(DIALECTS[name], lab, folder, CUT))
            assert caught.value.kind == "cut"


async def scores(dialect: Dialect, lab: Lab, folder: Path) -> list[tuple[float | None, str | None]]:
    """Scores and failures on rows of which the model knows some, errs on some, and says nothing readable of some."""
    rows = [*EXAMPLES, *(Example(text, {"text": text, "label": "billing"}) for text in (*MISLED, FORBIDDEN))]
    async with running(dialect, lab) as runtime:
        found = await Evaluator(runtime, has_right_label, 4).evaluate(workflow_of("predict", folder), rows)
        return [(one.score, one.failure) for one in found.results]


def test_a_model_that_thinks_scores_as_without_thoughts(lab: Lab, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate([name.removesuffix("-thoughtless") for name in THOUGHTLESS]):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            found = asyncio.run(scores(DIALECTS[name], lab, folder))
            assert found == asyncio.run(scores(THOUGHTLESS[f"{name}-thoughtless"], lab, folder))
            assert [score for score, _ in found][:4] == [1.0, 1.0, 0.0, 0.0]


def test_r10_a_page_of_a_firewall_is_no_answer_of_the_server(subtests: pytest.Subtests) -> None:
    page = "<!DOCTYPE html>\n<html><head><title>Attention Required!</title></head><body>You are blocked</body></html>"
    for status, body, kind in [
        (403, page, "blocked"),
        (406, page, "blocked"),
        (400, "<html>\r\n<head><title>400 Request Header Or Cookie Too Large</title></head></html>", "blocked"),
        (413, "<html>\r\n<head><title>413 Request Entity Too Large</title></head></html>", "blocked"),
        (403, {"error": {"message": f"upstream said: {page}"}}, "blocked"),
        (403, {"error": {"message": "no access", "code": "permission_denied"}}, "auth"),
        (422, {"detail": [{"type": "t", "msg": "value is not a text", "input": [page]}]}, "bad_request"),
        (422, {"detail": [{"type": "t", "msg": "the prompt is too long", "input": page}]}, "too_long"),
        (400, {"error": {"message": f"maximum context length is 9 tokens: {page}"}}, "too_long"),
        (400, {"error": {"message": f"in {page}", "code": "context_length_exceeded"}}, "too_long"),
        (400, {"error": {"message": f"filtered: {page}", "code": "content_filter"}}, "refusal"),
        (403, {"message": "Forbidden"}, "auth"),
        (401, page, "auth"),
        (404, page, "blocked"),
        (404, {"error": {"message": "The model `m` does not exist"}}, "blocked"),
        *[(status, "", "blocked") for status in (301, 302, 308, 405, 407, 410, 426, 431, 444, 451, 460)],
        (400, "upstream connect error or disconnect/reset before headers", "server"),
        (400, {"error": {"message": "connect ECONNREFUSED 127.0.0.1:8000"}}, "server"),
        (400, {"error": {"message": "messages: the upstream role is unknown"}}, "bad_request"),
        (429, page, "rate_limit"),
        (503, page, "server"),
    ]:
        with subtests.test(status=status, body=body):
            assert read_error(status, body) == kind
