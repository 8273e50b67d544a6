"""`workbench data induce`: metrics from comments on traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import BUDGET_USD, DB, JSON, OVERWRITE, budget_calls_option, seed_option

if TYPE_CHECKING:
    from workbench.spec import LMSpec
    from workbench_feedback.comments import Comments
    from workbench_feedback.coverage import Agreement
    from workbench_feedback.induce import InducedSet
    from workbench_feedback.settings import Induction

#: Messages about dropped and unreadable parts, by their counts.
_DROPPED = {
    "dropped_unfounded": "aspects dropped: their quote is in no step",
    "dropped_malformed": "aspects dropped: a part is missing",
    "comments_unread": "comments left out: the answers on them could not be read",
    "groups_unread": "groups without a metric: the answers on them could not be read",
    "aspects_left_out_of_groups": "aspects that the model did not group, assigned to the nearest group",
    "ratings_unfounded": "ratings set to 0: their quote is in no step",
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
    help="Output file for the metrics.",
)
@OVERWRITE
@click.option(
    "--lm",
    "model",
    envvar="WORKBENCH_LM",
    help="Model. [default for comments on runs: the proposer or lm of the first run]",
)
@click.option("--api-base", help="Base URL of the model's OpenAI-compatible server.")
@click.option(
    "--clustering",
    type=click.Choice(["lm", "tfidf"]),
    default="lm",
    show_default=True,
    help="Group comments by the model (lm) or by word similarity (tfidf).",
)
@click.option(
    "--min-metrics",
    "least",
    type=click.IntRange(1, 99),
    default=2,
    show_default=True,
    help="Minimum number of metrics.",
)
@click.option(
    "--max-metrics", "most", type=click.IntRange(1, 99), default=8, show_default=True, help="Maximum number of metrics."
)
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of the traces held out from making metrics.",
)
@click.option(
    "--trials", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of traces per trial."
)
@click.option(
    "--examples",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Maximum number of examples per metric.",
)
@click.option(
    "--window", type=click.IntRange(300), default=16_000, show_default=True, help="Maximum prompt length in tokens."
)
@click.option(
    "--max-tokens", type=click.IntRange(64), default=3000, show_default=True, help="Maximum answer length in tokens."
)
@seed_option(0)
@budget_calls_option(1000)
@BUDGET_USD
@click.option("--dry-run", is_flag=True, help="Show the maximum number of calls, and call no model.")
@DB
@JSON
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
    """Induce metrics from comments on traces.

    COMMENTS is a file of JSON lines: {"run": "last", "row": ID, "comment": TEXT}, {"log": FILE, "comment": TEXT} for a
    log that `workbench agent attribute` reads, or {"trace": TEXT, "comment": TEXT}. Use the result in a workflow with
    `metric: {induced: metrics.yaml}`. Running it again costs nothing. Exits with code 1 if the budget ran out.
    """
    from workbench.base.files import check_output
    from workbench.spec import BudgetSpec, LMSpec
    from workbench_feedback.comments import read_comments
    from workbench_feedback.induce import induce
    from workbench_feedback.metrics_file import is_unedited, write_metrics
    from workbench_feedback.settings import Induction

    if api_base and not model:
        raise click.UsageError("--api-base needs --lm, the model at that address")
    chosen = Induction.model_validate(settings)
    check_output(out, inputs=[comments], ours=is_unedited, overwrite=overwrite)
    read = read_comments(comments, db)
    if dry_run:
        _print_plan(read, chosen, as_json)
        return
    lm = LMSpec.model_validate({"model": model, "api_base": api_base}) if model else _model_of(read, db)
    if any(log.sealed for log in read.traces):
        say("Some rows are sealed: changes based on comments on them cannot be proved on them.", err=True)

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
    """Name the option in errors about `budget.usd` of a file."""
    from workbench.errors import SpecError

    try:
        yield
    except SpecError as error:
        if error.path != ("budget", "usd"):
            raise
        hint = "Use --budget-calls instead of --budget-usd, or comment on a run whose lm has a price."
        raise SpecError(error.message.replace("budget.usd", "--budget-usd"), hint=hint) from None


def _model_of(read: Comments, db: str) -> LMSpec:
    """Return the model of the first run that is commented on. It is called only if the run's file is trusted, as it may
    send rows and keys to any address."""
    from workbench.cli.trust import require_trust_in_run
    from workbench.errors import SpecError
    from workbench.store import ReadOnlyStore
    from workbench_kit.logs import model_of_run

    lm = None
    if read.runs:
        run = require_trust_in_run(read.runs[0], db)
        with ReadOnlyStore(db) as store:
            lm = model_of_run(store, run)
    if lm is None:
        raise SpecError(
            "no language model is named to read the comments",
            hint="Name it with --lm MODEL, e.g. --lm openai/gpt-4.1-mini, or --lm openai/NAME --api-base "
            "http://127.0.0.1:8000/v1.",
        )
    return lm


# Output


def _print_plan(read: Comments, settings: Induction, as_json: bool) -> None:
    from workbench_feedback.induce import max_calls

    plan = {"comments": len(read.comments), "traces": len(read.traces), "calls": max_calls(read, settings)}
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
            f"The budget ran out: {found.stopped}. Nothing was written. To continue, run the same command with a "
            "higher --budget-calls.",
            err=True,
        )


def _print_agreement(found: InducedSet) -> None:
    if found.held_out is None:
        say("Coverage unknown: no comment was held out, or none of these had an aspect.", fg="yellow")
        return
    say(f"On held-out comments ({len(found.held_out.matches)} traces):", bold=True)
    say(f"  coverage    {_share(found.held_out, 'coverage')} of the aspects")
    say(f"  redundancy  {_share(found.held_out, 'redundancy')} of the traits")
    if found.shuffled is None:
        say("  No control with a single trace.")
        return
    say(f"  control     coverage {_share(found.shuffled, 'coverage')} with the comments of other traces")
    if (found.shuffled.coverage or 0.0) >= (found.held_out.coverage or 0.0):
        say("  Comments of other traces match as well: the metrics do not tell traces apart.", fg="yellow")


def _share(agreement: Agreement, name: str) -> str:
    values = agreement.as_dict()
    low, high = values[f"{name}95"]
    return "unknown" if values[name] is None else f"{values[name]:.2f} [{low:.2f}, {high:.2f}]"
