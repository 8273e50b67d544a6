"""A test call of each language model that a workflow file names: `workbench doctor --ping`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.base.concurrency import run_in_loop
from workbench.errors import FailureKind, LMError, PluginError, ServerDead, SpecError
from workbench.inference import read_workflow
from workbench.lm import LM_KEYS, Request
from workbench.runtime import Run, Runtime
from workbench.spec import LMSpec, Source, Spec, lm_spec
from workbench.workflow import Workflow

PROMPT = "Reply with one word: ready."
#: Most tokens of an answer; enough for the thoughts of a small reasoning model.
_ANSWER = 256
#: Seconds in addition to the model's own timeout, for a server that asks to wait.
_GRACE = 5.0


@dataclass(frozen=True)
class Ping:
    """The outcome of a call.

    Args:
        uses: addresses that name the model: "lm", "roles.judge", "nodes.sort.lm".
        model: its name.
        prompt: the text sent.
        answer: the text; for an embedder, the length of its vectors.
        seconds: until the answer.
        prompt_tokens, completion_tokens: as the server counts them.
        usd: None if the price is unknown.
        failure, message: kind and message of the failure; None if there was none.
    """

    uses: tuple[str, ...]
    model: str
    prompt: str = PROMPT
    answer: str = ""
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    failure: str | None = None
    message: str | None = None


def ping_models(path: Path | Source) -> list[Ping]:
    """Call every model of a workflow file once: for the task, its roles, and its nodes.

    The calls are neither recorded nor repeated, and count in no run's budget. Data and metric are not read.

    path: the workflow file, or one already read. Raises SpecError if it cannot be used.
    """
    spec, _, workflow = read_workflow(path, ())

    async def main() -> list[Ping]:
        async with Run.in_memory("ping", spec) as run:
            return await asyncio.gather(*(_ping(run.runtime, *one) for one in _models(spec, workflow)))

    return run_in_loop(main())


def _models(spec: Spec, workflow: Workflow) -> list[tuple[LMSpec, bool, list[str]]]:
    """Return each model, whether it is asked for vectors, and the addresses that name it."""
    found: dict[str, tuple[LMSpec, bool, list[str]]] = {}

    def add(place: str, lm: LMSpec, embeds: bool = False) -> None:
        found.setdefault(f"{embeds} {lm.model_dump_json()}", (lm, embeds, []))[2].append(place)

    add("lm", spec.lm)
    for role, lm in spec.roles.items():
        add(f"roles.{role}", lm)
    for name, top in workflow.enabled_nodes.items():
        for node in top.walk():
            inner = "" if node is top else f".{node.name}"
            for key in LM_KEYS:
                if value := getattr(node.config, key, None):
                    add(f"nodes.{name}{inner}.{key}", lm_spec(value), key == "embedder")
    return list(found.values())


async def _ping(runtime: Runtime, lm: LMSpec, embeds: bool, uses: Sequence[str]) -> Ping:
    """Make one call through the ledger, as in a run, but with one attempt."""
    once = lm.model_copy(update={"attempts": 1})
    about = {"uses": tuple(uses), "model": lm.model}
    try:
        async with asyncio.timeout(lm.timeout + _GRACE):
            if embeds:
                vectors, calls = await runtime.embedder(once, "task")([PROMPT])
                paid, answer = calls[0][1], f"a vector of {len(vectors[0])} numbers"
                response = paid.response
            else:
                response, paid = await runtime.complete(once, _request(lm), "task")
                answer = response.text
    except LMError as error:
        return Ping(**about, failure=str(error.kind), message=str(error))
    except ServerDead as error:
        return Ping(**about, failure=str(FailureKind.NO_SERVER), message=str(error))
    except (SpecError, PluginError) as error:
        return Ping(**about, failure=str(FailureKind.UNSUPPORTED), message=str(error))
    except TimeoutError:
        text = f"no answer within {lm.timeout + _GRACE:g} s; the server may limit the rate of calls"
        return Ping(**about, failure=str(FailureKind.TIMEOUT), message=text)
    assert response is not None
    sent, written = response.prompt_tokens, response.completion_tokens
    known = response.usd is not None or runtime.pool.get(once).price(sent, written) is not None
    failure = None if answer.strip() else str(response.finish)
    message = None if answer.strip() else f"the answer is empty (finish: {response.finish})"
    usd = paid.usd if known else None
    return Ping(
        **about,
        answer=answer,
        seconds=paid.seconds,
        prompt_tokens=sent,
        completion_tokens=written,
        usd=usd,
        failure=failure,
        message=message,
    )


def _request(lm: LMSpec) -> Request:
    messages = ({"role": "user", "content": PROMPT},)
    return Request(messages, temperature=lm.temperature or 0.0, max_tokens=min(lm.max_tokens or _ANSWER, _ANSWER))
