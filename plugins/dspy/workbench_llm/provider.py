"""LMs through the Python API of Simon Willison's `llm`: all models that its plugins add."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import anyio

from workbench.base.distribution import pip_install
from workbench.errors import LMError, PluginError, SpecError, suggest
from workbench.lm import Message, Request, Response, cut_at_stops, estimate_tokens
from workbench_kit.lms.bounded_http import body_error, bounded_bodies
from workbench_kit.wire import estimate_answer, kind_of_error, read_finish, storable

DEFAULT_CONCURRENCY = 4
#: Names of the limit on the answer's length in `llm`'s plugins.
_MAX_TOKENS = ("max_tokens", "max_output_tokens", "num_predict", "max_completion_tokens")


def llm_model(model: str, settings: Any) -> LLMModel:
    """Return the LM for `llm:NAME`. Raises PluginError without the package `llm`, SpecError for an unknown name."""
    try:
        import llm
    except ImportError:
        raise PluginError(f"llm: models need another package: {pip_install('dspy[llm]')}") from None
    asynchronous, ordinary = llm.get_async_model_aliases(), llm.get_model_aliases()
    found = asynchronous.get(model) or ordinary.get(model)
    if found is None:
        hint = suggest(model, {*asynchronous, *ordinary}) + " See `llm models` and `llm install`."
        raise SpecError(f"llm knows no model '{model}'", hint=hint, path=("lm",))
    return LLMModel(found, model in asynchronous, settings)


class LLMModel:
    """An LM over one model of `llm`: asynchronous if the model has such a form, else in a thread."""

    def __init__(self, model: Any, asynchronous: bool, settings: Any):
        self._model, self._asynchronous, self._settings = model, asynchronous, settings
        self._known = set(type(model).Options.model_fields) if hasattr(type(model), "Options") else set()
        self.identity = f"llm:{model.model_id}"
        if settings.extra:
            self.identity += repr(sorted(settings.extra.items(), key=str))
        self.concurrency = settings.concurrency or DEFAULT_CONCURRENCY

    async def complete(self, request: Request) -> Response:
        """Prompt the model once. Raises LMError."""
        if request.tools or request.response_format is not None:
            raise LMError("unsupported", f"{self.identity} takes neither tools nor a response format")
        arguments = self._arguments(request)
        try:
            with bounded_bodies():
                if self._asynchronous:
                    response = self._model.prompt(**arguments)
                    text, usage = await response.text(), await response.usage()
                else:
                    # A thread cannot be stopped, so a cancelled call leaves it to finish alone.
                    response, text, usage = await anyio.to_thread.run_sync(
                        self._in_thread, arguments, abandon_on_cancel=True
                    )
        except LMError:
            raise
        except Exception as error:
            raise self._mapped(error) from None
        return self._response(request, text, usage, _reason(response))

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost by the settings' price; else None, since `llm` knows no prices."""
        price = self._settings.price
        if price is None:
            return None
        price = price if isinstance(price, Mapping) else vars(price)
        return (prompt_tokens * price["input"] + completion_tokens * price["output"]) / 1e6

    async def aclose(self) -> None:
        """Do nothing: `llm` opens a connection for each call."""

    def _in_thread(self, arguments: dict[str, Any]) -> tuple[Any, str, Any]:
        response = self._model.prompt(**arguments)
        return response, response.text(), response.usage()

    def _arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments of `Model.prompt`, with only the sampling settings that the model supports."""
        options: dict[str, Any] = {}
        if "temperature" in self._known:
            options["temperature"] = request.temperature
        if "top_p" in self._known and request.top_p != 1.0:
            options["top_p"] = request.top_p
        if name := next((name for name in _MAX_TOKENS if name in self._known), None):
            options[name] = request.max_tokens
        options.update(self._settings.extra or {}, **request.extra)
        arguments: dict[str, Any] = {"stream": False, "options": options, **_turns(request.messages)}
        if variable := self._settings.api_key_env:
            key = os.environ.get(variable, "").strip()
            if not key:
                raise LMError("auth", f"{self.identity} needs an API key: set the variable {variable}")
            arguments["key"] = key
        return arguments

    def _response(self, request: Request, text: str, usage: Any, reason: str | None) -> Response:
        text = cut_at_stops(text, request.stop)
        prompt, completion = usage.input, usage.output
        estimated = prompt is None or completion is None
        if prompt is None:
            prompt = estimate_tokens(request.messages)
        if completion is None:
            completion = estimate_answer(text)
        return Response(
            storable(text),
            read_finish(reason, text, False),
            prompt,
            completion,
            usd=self.price(prompt, completion),
            estimated=estimated,
        )

    def _mapped(self, error: Exception) -> LMError:
        import llm

        if refused := body_error(error):
            return LMError("bad_body", f"{self.identity}: {refused}")
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        text = str(error)[:300]
        for name, value in os.environ.items():
            if len(value) >= 6 and (name.endswith(("_KEY", "_TOKEN")) or name == self._settings.api_key_env):
                text = text.replace(value, "***")
        return LMError(_kind(error, status, llm.NeedsKeyException), f"{self.identity}: {text}", status=status)


def _kind(error: Exception, status: Any, needs_key: type[Exception]) -> str:
    """Classify the exception of an unknown plugin: by HTTP status and body if it has them, else by its name."""
    name = type(error).__name__
    if isinstance(error, needs_key):
        return "auth"
    if isinstance(status, int):
        return kind_of_error(status, getattr(error, "body", None) or str(error))
    if "Timeout" in name:
        return "timeout"
    if isinstance(error, OSError) or "Connect" in name:
        return "connection"
    return "bad_request" if isinstance(error, (TypeError, ValueError, NotImplementedError)) else "server"


def _turns(messages: tuple[Message, ...]) -> dict[str, Any]:
    """Return a question as `prompt`, which every plugin supports; a longer conversation as `messages`."""
    import llm

    system = "\n\n".join(str(m["content"]) for m in messages if m["role"] in ("system", "developer"))
    turns = [m for m in messages if m["role"] not in ("system", "developer")]
    if len(turns) == 1 and turns[0]["role"] == "user":
        return {"prompt": str(turns[0]["content"]), **({"system": system} if system else {})}
    make = {"user": llm.user, "assistant": llm.assistant}
    if unknown := {m["role"] for m in turns} - make.keys():
        raise LMError("unsupported", f"llm: messages of role '{sorted(unknown)[0]}' do not pass through")
    history = [llm.system(system)] if system else []
    return {"messages": history + [make[m["role"]](str(m.get("content") or "")) for m in turns]}


def _reason(response: Any) -> str | None:
    """Return why the answer ended, if the plugin keeps the provider's JSON."""
    data = getattr(response, "response_json", None)
    if not isinstance(data, dict):
        return None
    for name in ("finish_reason", "stop_reason", "finishReason", "done_reason"):
        if isinstance(data.get(name), str):
            return data[name]
    return None
