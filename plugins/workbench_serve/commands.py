"""`workbench serve`: a workflow behind HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.base.text import one_line
from workbench.cli import say


@click.command("serve")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--concurrency", type=click.IntRange(1), help="Requests that run at once. Default: that of the file.")
@click.option(
    "--waiting", type=click.IntRange(0), default=64, show_default=True, help="Further requests that may wait."
)
@click.option("--deadline", type=click.FloatRange(0, min_open=True), help="Seconds for a request. Default: no limit.")
@click.option(
    "--max-body", type=click.IntRange(1), default=1_000_000, show_default=True, help="Bytes of a request at most."
)
@click.option("--token", envvar="WORKBENCH_SERVE_TOKEN", help="What clients must send. Better given as the variable.")
@click.option("--no-auth", is_flag=True, help="Listen beyond this machine without a token.")
@click.option("--trace", is_flag=True, help="Let clients see what each node did, by ?trace=1.")
@click.option("--fixed", is_flag=True, help="Always the file's own configuration, however long requests wait.")
@click.option("--set", "sets", multiple=True, metavar="ADDRESS=VALUE", help="Change a setting of the file.")
@click.option("--sandbox", metavar="NAME", envvar="WORKBENCH_SANDBOX", help="Sandbox for model-written code.")
def serve_command(
    file: Path,
    host: str,
    port: int,
    concurrency: int | None,
    waiting: int,
    deadline: float | None,
    max_body: int,
    token: str | None,
    no_auth: bool,
    trace: bool,
    fixed: bool,
    sets: tuple[str, ...],
    sandbox: str | None,
) -> None:
    """Serve the workflow in FILE over HTTP (extra [serve]).

    \b
    POST /predict               {"FIELD": value, ...} -> {"outputs": {...}, "cost": {...}}
    POST /v1/chat/completions   as OpenAI's, for workflows with one text in and one out; GET /v1/models
    GET  /openapi.json          inputs and outputs with their types
    GET  /health                {"status": "ok"}

    Where the file has `configurations:`, as `optimize` writes them for `targets:`, a request that had to wait is
    answered by a faster one; the answer says which.

    SIGTERM or Ctrl-C ends it once running requests are answered, a second one at once. Tool calls for which the policy
    says `ask` are refused.
    """
    from contextlib import ExitStack
    from dataclasses import replace

    from workbench.cli.trust import require_trust
    from workbench.inference import load, load_configurations
    from workbench_serve.settings import Settings

    shown = (token or "").strip() or None  # a header cannot carry outer spaces
    settings = Settings(host, port, waiting=waiting, deadline=deadline, max_body=max_body, token=shown, trace=trace)
    settings.check(no_auth)
    _require_extra()
    from workbench_serve.server import serve

    with ExitStack() as stack:
        source = require_trust(file, called=True)
        wf = stack.enter_context(load(source, changes=_changes(sets), sandbox=sandbox))
        loaded = [wf] if fixed else load_configurations(wf, source, changes=_changes(sets), sandbox=sandbox)
        settings = replace(settings, concurrency=concurrency or wf.spec.concurrency)
        serve(
            wf,
            settings,
            others=[stack.enter_context(other) for other in loaded[1:]],
            log=lambda line: say(one_line(line), err=True),
            ready=lambda address: say(f"Serving {one_line(wf.spec.name)} at {one_line(address)}", err=True),
        )
    say("Stopped.", err=True)


def _changes(sets: tuple[str, ...]) -> dict[str, object]:
    from workbench.spec import parse_value

    pairs = [text.partition("=") for text in sets]
    for text, (address, equals, _) in zip(sets, pairs, strict=True):
        if not equals or not address.strip():
            raise click.BadParameter(f"'{text}' must have the form ADDRESS=VALUE", param_hint="--set")
    return {address.strip(): parse_value(value) for address, _, value in pairs}


def _require_extra() -> None:
    from workbench.base.distribution import pip_install
    from workbench.errors import SpecError

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SpecError(f"serving needs {error.name}: {pip_install('serve')}") from None
