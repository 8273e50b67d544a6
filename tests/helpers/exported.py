"""Exported DSPy programs, loaded and asked in this process, with a language model that answers as a function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from workbench.lm import Request, Response
from workbench.spec import lm_spec
from workbench_kit.wire import Form, make_body
from workbench_nano.provider import NanoLM, bundled


class Answers:
    """`dspy.LM`'s engine: records each request, as one of ours, and answers it by a function."""

    def __init__(self, say: Callable[[Request], str | Response]):
        self.say, self.requests = say, list[Request]()

    def complete(self, request: Any) -> Any:
        config = request.config
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, *({"role": m.role, "content": m.text or ""} for m in request.messages)]
        asked = Request(
            tuple(messages),
            temperature=config.temperature or 0.0,
            max_tokens=config.max_tokens,
            top_p=config.top_p or 1.0,
            stop=tuple(config.stop or ()),
        )
        self.requests.append(asked)
        said = self.say(asked)
        said = said if isinstance(said, Response) else Response(said)
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant([lm15.TextPart(said.text)]),
            finish_reason="length" if said.finish == "length" else "stop",
            usage=lm15.Usage(input_tokens=1, output_tokens=1),
        )

    def lm(self) -> dspy.LM:
        return dspy.LM("test/scripted", engine=self, cache=False, num_retries=0)

    def __deepcopy__(self, memo: Any) -> Answers:
        return self

    def close(self) -> None:
        pass


@contextmanager
def loaded(folder: Path) -> Iterator[Any]:
    """The program of a folder, loaded by the two lines that the documentation gives."""

    def forget() -> None:
        for name in [n for n in sys.modules if n.partition(".")[0] in ("program", "program_parts", "program_tools")]:
            del sys.modules[name]

    forget()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        program = importlib.import_module("program").Program()
        program.load(folder / "program.json")
        yield program
    finally:
        sys.path.remove(str(folder))
        forget()


def ask_program(program: Any, row: dict[str, Any], answers: Answers) -> tuple[dict[str, Any] | None, str]:
    """(prediction, failure): one of the two, for one row."""
    with dspy.context(lm=answers.lm(), disable_history=True):
        try:
            return dict(program(**row).items()), ""
        except Exception as error:
            return None, str(error) or type(error).__name__


def as_sent(requests: list[Request]) -> list[dict[str, Any]]:
    """What a server gets of each request, without the number of the draw."""
    return [make_body("m", replace(r, replica=0), {}, Form()) for r in requests]


@cache
def _nano() -> NanoLM:
    return bundled("nano", lm_spec("bundled/nano"))


def nano(request: Request) -> Response:
    """The answer of the bundled model, whose weights are read once. No event loop is needed, and none disturbs it."""
    (found,) = _nano()._generate([request])
    if isinstance(found, Exception):
        raise found
    return found
