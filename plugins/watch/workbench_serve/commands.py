"""`workbench serve`: a workflow behind HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.base.text import one_line
from workbench.cli import say
from workbench.cli.options import FILE, SET, read_settings


@click.command("serve")
@FILE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port. 0: any free port.")
@click.option(
    "--concurrency", type=click.IntRange(1), help="Maximum number of concurrent requests. [default: from the file]"
)
@click.option(
    "--waiting", type=click.IntRange(0), default=64, show_default=True, help="Maximum number of waiting requests."
)
@click.option("--deadline", type=click.FloatRange(0, min_open=True), help="Seconds per request. [default: no limit]")
@click.option(
    "--max-body", type=click.IntRange(1), default=1_000_000, show_default=True, help="Maximum request size in bytes."
)
@click.option("--token", envvar="WORKBENCH_SERVE_TOKEN", show_envvar=True, help="Token that clients must send.")
@click.option("--no-auth", is_flag=True, help="Allow other machines without a token.")
@click.option("--trace", is_flag=True, help="Let clients request the steps of each node with ?trace=1.")
@click.option("--fixed", is_flag=True, help="Always use the file's own configuration, however long requests wait.")
@SET
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
    """Serve a workflow over HTTP. Needs the extra [serve].

    \b
    POST /predict               {"FIELD": value, ...} -> {"outputs": {...}, "cost": {...}}
    POST /v1/chat/completions   as OpenAI's, for workflows with one text in and one out; GET /v1/models
    GET  /openapi.json          inputs and outputs with their types
    GET  /health                {"status": "ok"}

    If the file has `configurations:`, which `optimize` writes for `targets:`, requests that had to wait are answered by
    a faster configuration, named in the answer. Tool calls for which the policy says `ask` are refused.

    SIGTERM or Ctrl-C stops the server after running requests, a second one at once.
    """
    from contextlib import ExitStack
    from dataclasses import replace

    from workbench.cli.trust import require_trust
    from workbench.inference import load, load_configurations
    from workbench_serve.settings import Settings

    shown = (token or "").strip() or None  # a header cannot have outer spaces
    settings = Settings(host, port, waiting=waiting, deadline=deadline, max_body=max_body, token=shown, trace=trace)
    settings.check(no_auth)
    changes = dict(read_settings(sets))
    _require_extra()
    from workbench_serve.server import serve

    with ExitStack() as stack:
        source = require_trust(file, [*changes.items()], called=True)
        wf = stack.enter_context(load(source, changes=changes, sandbox=sandbox))
        loaded = [wf] if fixed else load_configurations(wf, source, changes=changes, sandbox=sandbox)
        settings = replace(settings, concurrency=concurrency or wf.spec.concurrency)
        serve(
            wf,
            settings,
            others=[stack.enter_context(other) for other in loaded[1:]],
            log=lambda line: say(one_line(line), err=True),
            ready=lambda address: say(f"Serving {one_line(wf.spec.name)} at {one_line(address)}", err=True),
        )
    say("Stopped.", err=True)


def _require_extra() -> None:
    from workbench.base.distribution import pip_install
    from workbench.errors import SpecError

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SpecError(f"serving needs {error.name}: {pip_install('watch[serve]')}") from None
