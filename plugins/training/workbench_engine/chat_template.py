"""Chat templates of checkpoints, rendered with a deadline in a process of its own (see chat_template_process.py).

A template is a program in Jinja. Its sandbox keeps it from Python, not from loops within loops or texts of gigabytes,
and a thread that runs it cannot be ended.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import workbench_kit.acting.confine
from workbench.base.child_process import python_command
from workbench.base.type_guards import is_dict
from workbench.errors import SpecError, WorkbenchError

#: Seconds for one chat. Real templates take milliseconds.
DEADLINE = 10.0
#: A template that took longer so many times is not tried again: once may be the machine's fault.
OVERRUNS = 3
_START = 120.0
_PROGRAM = Path(__file__).with_name("chat_template_process.py")
#: What the process sees of the environment: no secrets.
_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "TMPDIR")


#: Names that a chat template is rendered with in any case, so that no setting can have them.
RESERVED = frozenset(
    "add_generation_prompt chat_template continue_final_message conversation conversations documents messages "
    "return_assistant_tokens_mask return_dict return_tensors tokenize tools".split()
)


def check_template_settings(settings: Any) -> dict[str, Any]:
    """Check what `chat_template_kwargs` of a local model says. Returns it. Raises SpecError."""
    place = ("lm", "extra", "chat_template_kwargs")
    example = "Write e.g. extra: {chat_template_kwargs: {enable_thinking: false}}."
    if not is_dict(settings):
        raise SpecError(f"chat_template_kwargs is no mapping: {settings!r:.60}", hint=example, path=place)
    if taken := sorted(name for name in settings if not name.isidentifier() or name in RESERVED):
        raise SpecError(f"'{taken[0]}' is no setting of a chat template", hint=example, path=(*place, taken[0]))
    try:
        return json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SpecError(f"chat_template_kwargs holds what is no JSON: {error}", hint=example, path=place) from None


class TemplateError(WorkbenchError):
    """A chat template refused the messages, or did not end."""


def render_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    add_generation_prompt: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Render a chat as `tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **settings)` does. Raises
    TemplateError, and ValueError for a tokenizer without a template."""
    from transformers import PreTrainedTokenizerBase

    if not messages:
        raise TemplateError("there are no messages")
    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        # A tokenizer with code of its own instead of a template, which comes with transformers.
        return tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
            **(settings or {}),
        )
    request = {
        "template": tokenizer.get_chat_template(),
        "messages": [{key: value for key, value in message.items() if value is not None} for message in messages],
        "tools": list(tools) or None,
        "add_generation_prompt": add_generation_prompt,
        "special_tokens": tokenizer.special_tokens_map,
        "settings": dict(settings or {}),
    }
    return _RENDERER.render(request)


class _Renderer:
    """The process, started when it is first needed, and again after its end or a fork of ours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._overran: Counter[str] = Counter()
        self._left: list[Any] = []

    def render(self, request: Mapping[str, Any]) -> str:
        line = json.dumps(request, default=str).encode() + b"\n"
        with self._lock:
            if self._overran[request["template"]] >= OVERRUNS:
                raise TemplateError(f"it took more than {DEADLINE:g} s {OVERRUNS} times before")
            answer = self._answer(line)
            if answer is None:  # it may have been at the end of its processor time
                answer = self._answer(line)
            if answer is None:
                raise TemplateError("it ended the process that rendered it")
            if not answer:
                self._overran[request["template"]] += 1
                raise TemplateError(f"it took more than {DEADLINE:g} s")
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["text"]

    def _answer(self, line: bytes) -> dict[str, str] | None:
        """The answer to a request; {} after the deadline, None from a process that ended."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            data = self._line(self._process, DEADLINE)
        except BrokenPipeError:
            data = b""
        if not data:
            self.end()
        return {} if data is None else json.loads(data) if data else None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        process = subprocess.Popen(
            python_command("-B", str(_PROGRAM), workbench_kit.acting.confine.__file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            start_new_session=True,  # Ctrl-C is the workbench's business
        )
        if not self._line(process, _START):
            self._process = process
            self.end()
            raise TemplateError("the process that renders chat templates does not start")
        return process

    @staticmethod
    def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """Read the next line of the process; None after a timeout in seconds, nothing where it ended."""
        assert process.stdout is not None
        until, data = time.monotonic() + seconds, bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not ready.select(max(0.0, until - time.monotonic())):
                    return None
                if not (part := os.read(process.stdout.fileno(), 1 << 20)):
                    return b""
                data += part
        return bytes(data)

    def leave(self) -> None:
        """Forget the process, and a lock that another thread held: after a fork both are the parent's."""
        self._left.append(self._process)
        self._lock, self._process = threading.Lock(), None

    def end(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


_RENDERER = _Renderer()
atexit.register(_RENDERER.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RENDERER.leave)
