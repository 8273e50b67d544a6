"""`workbench induce`: metrics from comments on traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.run_commands import OVERWRITE

if TYPE_CHECKING:
    from workbench.spec import LMSpec
    from workbench_feedback.comments import Comments
    from workbench_feedback.coverage import Agreement
    from workbench_feedback.induce import InducedSet
    from workbench_feedback.settings import Induction

#: In words, what was dropped or could not be read.
_DROPPED = {
    "dropped_unfounded": "aspects dropped: no step says their quote",
    "dropped_malformed": "aspects dropped: a part is missing",
    "comments_unread": "comments left out: the answers on them could not be read",
    "groups_unread": "groups without a metric: the answers on them could not be read",
    "aspects_left_out_of_groups": "aspects that the model left out of its groups, put to the nearest one",
    "ratings_unfounded": "ratings set to 0: no step says their quote",
    "traces_unread": "traces left out of a trial: the answers on them could not be read",
    "matches_unread": "traces left out of a measurement: the judge or its matches could not be read",
}


@click.command("induce")
@click.argument("comments", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="metrics.yaml",
    show_default=True,
    help="File of the metrics.",
)
@OVERWRITE
@click.option(
    "--lm",
    "model",
    envvar="WORKBENCH_LM",
    help="The model (default for comments on runs: the proposer of the first run, or its lm).",
)
@click.option("--api-base", help="Address of its OpenAI-compatible server.")
@click.option(
    "--clustering",
    type=click.Choice(["lm", "tfidf"]),
    default="lm",
    show_default=True,
    help="Who groups what comments say: the model, or similarity of words.",
)
@click.option("--least", type=click.IntRange(1, 99), default=2, show_default=True, help="Metrics, at least.")
@click.option("--most", type=click.IntRange(1, 99), default=8, show_default=True, help="Metrics, at most.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of the traces whose comments no metric is made of.",
)
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True, help="Traces of a trial, at most.")
@click.option("--examples", type=click.IntRange(1, 20), default=3, show_default=True, help="In a metric, at most.")
@click.option("--window", type=click.IntRange(300), default=16_000, show_default=True, help="Tokens of a prompt.")
@click.option("--max-tokens", type=click.IntRange(64), default=3000, show_default=True, help="Tokens of an answer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of held-out traces, trials and the control.")
@click.option(
    "--budget-calls", type=click.IntRange(1), default=1000, show_default=True, help="Maximum LM calls, with retries."
)
@click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="Maximum cost in dollars.")
@click.option("--dry-run", is_flag=True, help="Read the comments, say how many calls they take at most, and stop.")
@click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on stdout.")
def induce_command(
    comments: Path,
    out: Path,
    model: str | None,
    api_base: str | None,
    budget_calls: int,
    budget_usd: float | None,
    overwrite: bool,
    dry_run: bool,
    db: str,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make metrics of what people say about traces: of COMMENTS, a file of JSON lines.

    A line is {"run": "last", "row": ID, "comment": TEXT}, {"log": FILE, "comment": TEXT} for a log that `attribute`
    reads, or {"trace": TEXT, "comment": TEXT}. A workflow uses the result with `metric: {induced: metrics.yaml}`. The
    same command again pays nothing. Exits with code 1 if the budget did not last.
    """
    from workbench.base.files import check_output
    from workbench.spec import BudgetSpec
    from workbench_feedback.comments import read_comments
    from workbench_feedback.induce import induce
    from workbench_feedback.metrics_file import is_unedited, write_metrics
    from workbench_feedback.settings import Induction

    if api_base and not model:
        raise click.UsageError("--api-base is the address of the model that --lm names")
    chosen = Induction.model_validate(settings)
    check_output(out, inputs=[comments], ours=is_unedited, overwrite=overwrite)
    read = read_comments(comments, db)
    if dry_run:
        _print_plan(read, chosen, as_json)
        return
    lm = _named_model(model, api_base) if model else _model_of(read, db)
    if any(log.sealed for log in read.traces):
        say("Some rows are sealed: a change that comes of comments on them cannot be proved on them.", err=True)

    def report_progress(line: str) -> None:
        if not as_json:
            say(line, err=True)

    budget = BudgetSpec.model_validate({"calls": budget_calls, "usd": budget_usd})
    with _flags_named():
        found = induce(read, chosen, lm, database=db, budget=budget, on_progress=report_progress)
    made = {"lm": lm.model, "settings": chosen.model_dump(mode="json"), **found.report()}
    if found.metrics:
        write_metrics(out, found.metrics, {"comments": comments.name, **made})
    if as_json:
        metrics = [metric.model_dump(exclude_none=True) for metric in found.metrics]
        end = {"metrics": metrics, **made, "paid": found.paid, "stopped": found.stopped}
        echo_json({**end, "out": str(out) if found.metrics else None})
    else:
        _print(found, out)
    sys.exit(0 if found.stopped is None else 1)


@contextmanager
def _flags_named() -> Iterator[None]:
    """What is said of a budget in a file is said of the flag."""
    from workbench.errors import SpecError

    try:
        yield
    except SpecError as error:
        if error.path != ("budget", "usd"):
            raise
        hint = "Leave --budget-usd out: --budget-calls is a limit, too. Or comment on a run whose lm has a price."
        raise SpecError(error.message.replace("budget.usd", "--budget-usd"), hint=hint) from None


def _named_model(model: str, api_base: str | None) -> LMSpec:
    from workbench.spec import LMSpec

    return LMSpec.model_validate({"model": model, "api_base": api_base})


def _model_of(read: Comments, db: str) -> LMSpec:
    """The model of the first run that is commented on. It is asked only if its file is trusted: it may send rows and
    keys to any address."""
    from workbench.cli.trust import require_trust_in_run
    from workbench.errors import SpecError
    from workbench.kit.logs import model_of_run
    from workbench.store import ReadOnlyStore

    lm = None
    if read.runs:
        run = require_trust_in_run(read.runs[0], db)
        store = ReadOnlyStore(db)
        try:
            lm = model_of_run(store, run)
        finally:
            store.close()
    if lm is None:
        raise SpecError(
            "a language model reads the comments, and none is named",
            hint="Name it with --lm MODEL, e.g. --lm openai/gpt-4.1-mini, or --lm openai/NAME --api-base "
            "http://127.0.0.1:8000/v1.",
        )
    return lm


# Output


def _print_plan(read: Comments, settings: Induction, as_json: bool) -> None:
    from workbench_feedback.induce import most_calls

    plan = {"comments": len(read.comments), "traces": len(read.traces), "calls": most_calls(read, settings)}
    if as_json:
        echo_json(plan)
    else:
        say(f"{plan['comments']} comments on {plan['traces']} traces: at most {plan['calls']} calls")


def _print(found: InducedSet, out: Path) -> None:
    for metric in found.metrics:
        say(one_line(metric.name), bold=True)
        say(one_line(f"  {metric.definition}"))
        for word, examples in (("good", metric.good), ("bad", metric.bad)):
            for one in examples:
                say(one_line(f"  {word}: {one.behaviour} ({one.comment}, step {one.step})"))
    for name, what in _DROPPED.items():
        if n := found.counts.get(name, 0):
            say(f"{n} {what}", fg="yellow")
    if found.metrics:
        _print_agreement(found)
        say(f"Written to {out}. Use it with metric: {{induced: {out.name}}}")
    say(
        f"Run {found.run}. Paid now: {found.paid['calls']} calls, {found.paid['tokens']} tokens, "
        f"${found.paid['usd']:.4f}"
    )
    if found.stopped:
        say(
            f"The budget did not last: {found.stopped}. Nothing was written. The same command with a higher "
            "--budget-calls goes on from here.",
            err=True,
        )


def _print_agreement(found: InducedSet) -> None:
    if found.held_out is None:
        say("Nothing is known of coverage: no comment was held out, or none of these gave an aspect.", fg="yellow")
        return
    say(f"On comments that no metric was made of ({len(found.held_out.matches)} traces):", bold=True)
    say(f"  coverage    {_share(found.held_out, 'coverage')} of the aspects")
    say(f"  redundancy  {_share(found.held_out, 'redundancy')} of the traits")
    if found.shuffled is None:
        say("  One trace alone has no control.")
        return
    say(f"  control     coverage {_share(found.shuffled, 'coverage')} with the comments of other traces")
    if (found.shuffled.coverage or 0.0) >= (found.held_out.coverage or 0.0):
        say("  They match the comments of other traces as well: they say nothing of a single trace.", fg="yellow")


def _share(agreement: Agreement, name: str) -> str:
    values = agreement.as_dict()
    low, high = values[f"{name}95"]
    return "not known" if values[name] is None else f"{values[name]:.2f} [{low:.2f}, {high:.2f}]"
