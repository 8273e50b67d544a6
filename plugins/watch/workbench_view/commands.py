"""`workbench report` and `workbench view`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from workbench.base.text import one_line
from workbench.cli import fail, say
from workbench.cli.options import DB, OVERWRITE

if TYPE_CHECKING:
    from workbench_view.server.site import LabelFiles

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("report")
@click.argument("run", default="last")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Output file (.html, .md, .json or .csv).",
)
@OVERWRITE
@DB
def report_command(run: str, out: Path, overwrite: bool, db: str) -> None:
    """Write a report of a run as a page or as data.

    RUN is a run of optimize or eval. A page (.html, .md) has the proof, the changes, the rows whose result changed with
    their traces, the candidates and the costs. It is one file and needs no network. A .csv file has a line for each
    sealed row, or for each row of an eval, with the answers. All formats contain rows of your data and answers of
    models.
    """
    from workbench.store import ReadOnlyStore
    from workbench_view.exports import WRITERS
    from workbench_view.pages import check_report, write_report

    if out.suffix not in WRITERS:
        return fail(f"'{one_line(out)}' has no known suffix: use {', '.join(WRITERS)}", 2)
    check_report(out, overwrite)
    with ReadOnlyStore(db) as store:
        write_report(store, run, out)
    return say(f"wrote {one_line(out)}")


@click.command("view")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Others than this machine's need a token.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="Port. 0: any free port.")
@click.option("--token", envvar="WORKBENCH_VIEW_TOKEN", show_envvar=True, help="Token that requests must have.")
@click.option("--make-token", is_flag=True, help="Generate a token and print it in the address.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Additional host name to accept. Repeatable."
)
@click.option(
    "--labels",
    "labels",
    type=_FILE,
    help="File of the labels. [default: labels.jsonl; for --answers: FILE.labels.jsonl]",
)
@click.option("--answers", "rows", type=_FILE, help="File of rows to label besides the answers of runs.")
@click.option("--field", default="output", show_default=True, help="Field of --answers with the answer.")
@click.option("--start", is_flag=True, help="Let pages start and resume runs, which may cost money.")
@DB
def view_command(
    host: str,
    port: int,
    token: str | None,
    make_token: bool,
    hosts: tuple[str, ...],
    labels: Path | None,
    rows: Path | None,
    field: str,
    start: bool,
    db: str,
) -> None:
    """Browse, steer and label runs in a web browser.

    Shows live and finished runs, candidates, rows with their traces, comparisons, data and plugins. You can steer and
    branch runs, label answers, and edit tags and notes. Only this machine has access; other addresses (--host) need a
    token. Nothing is loaded from a network. No code of a workflow runs, except in runs started from a page (--start),
    which outlive the server. Ctrl-C stops it. Needs the extra [view].
    """
    import secrets
    import threading

    _require_server()
    from workbench.lm import is_loopback
    from workbench_view.server.access import Access
    from workbench_view.server.app import make_app
    from workbench_view.server.listen import listen
    from workbench_view.server.site import Site, load_libraries
    from workbench_view.server.starting import Starter

    token = (token or "").strip() or (secrets.token_urlsafe(24) if make_token else None)
    if token is None and not is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}"):
        return fail(f"--host {one_line(host)} is open to other machines: add --make-token or --token", 2)
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable()):
        return fail("a token must have at least 16 printable ASCII characters; --make-token generates one", 2)
    files = _label_files(rows, labels, field)
    threading.Thread(target=load_libraries, daemon=True).start()
    site = Site(db, lambda line: say(one_line(line), err=True), files, Starter(Path(db)).start if start else None)
    made = f"/?token={quote(token, safe='')}" if token is not None and make_token else "/"

    def ready(address: str) -> None:
        more = "" if token is None or make_token else "?token=... with your token, once"
        say(f"Showing {one_line(db)} at {address}{made}{more}", err=True)

    try:
        listen(make_app(site, Access(host, token, frozenset(name.lower() for name in hosts))), host, port, ready)
    finally:
        site.close()
    return say("Stopped.", err=True)


def _label_files(rows: Path | None, labels: Path | None, field: str) -> LabelFiles:
    """Return the files to label. Raises SpecError for a missing file or field now, since the page would be useless."""
    from workbench.errors import SpecError
    from workbench_kit.labels import file_items
    from workbench_view.server.site import LabelFiles

    if rows is not None and not rows.is_file():
        raise SpecError(f"--answers {one_line(rows)}: there is no such file")
    if rows is not None:
        file_items(rows, field)
    return LabelFiles(
        labels or Path("labels.jsonl"), rows, labels or (rows and rows.with_suffix(".labels.jsonl")), field
    )


def _require_server() -> None:
    from workbench.base.distribution import pip_install
    from workbench.errors import SpecError

    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SpecError(f"the page needs {error.name}: {pip_install('watch[view]')}") from None
