"""`workbench agent attribute`: find the agent and the step that made runs fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from workbench.base.text import one_line
from workbench.cli import Styled, echo_json, say
from workbench.cli.options import DB, JSON, budget_calls_option, limit_option, seed_option

if TYPE_CHECKING:
    from workbench.spec import LMSpec
    from workbench_attribute.attribute import Attribution
    from workbench_attribute.diagnosis import Diagnosis
    from workbench_attribute.settings import Judging
    from workbench_kit.logs import Log


#: Agents in the printed totals.
MAX_AGENTS = 10


#: Methods that need a run of workbench, and their own flags.
OF_RUNS = ("replay", "spectrum")
_OF_RUNS = ("repair", "draws", "scan", "candidate", "passing", "formula")

#: The flags of the methods. Environment variables do not count as flags.
_FLAGS = {
    "replay": "repair draws scan candidate passing rows limit budget_calls",
    "spectrum": "passing formula split",
    "judge": "form model api_base timeout concurrency votes ground_truth split rows limit window max_tokens seed "
    "budget_calls",
    "baseline": "form split rows limit seed",
}

_RUN_OPTIONS = (
    click.option(
        "--repair",
        type=click.Choice(["lm", "fresh", "sibling", "label"]),
        help="replay: replacement for a step: an answer of --lm or the role proposer (lm, the default), new answers of "
        "its own model (fresh), the output in a passing repeat or candidate (sibling), or the row's field of that name "
        "(label).",
    ),
    click.option(
        "--samples",
        "draws",
        type=click.IntRange(1, 99),
        default=3,
        show_default=True,
        help="replay: samples per step for fresh.",
    ),
    click.option("--scan", is_flag=True, help="replay: try every step in order instead of bisection."),
    click.option("--candidate", default="", help="replay: candidate hash or `baseline`. [default: the winner]"),
    click.option(
        "--passing",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="replay, spectrum: minimum score of a passing row.",
    ),
    click.option(
        "--formula",
        type=click.Choice(["ochiai", "tarantula", "dstar"]),
        default="ochiai",
        show_default=True,
        help="spectrum: suspiciousness formula.",
    ),
)


def _with_run_options(command: Any) -> Any:
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


@click.command("attribute")
@click.argument("source", metavar="RUN|FILE")
@click.option(
    "--run", "named", is_flag=True, help="Read the argument as the name of a run, even if there is such a file."
)
@click.option(
    "--format",
    "form",
    metavar="NAME",
    help="Log format of FILE: who-and-when, atif, otel or openinference. [default: by its content]",
)
@click.option(
    "--method",
    metavar="NAME",
    help="With a judge: all-at-once, step-by-step, binary or hybrid. Without one: random, majority or lexical. For "
    "runs also replay (repeats failed rows with repaired steps) and spectrum (compares failed with passed rows). "
    "[default: one that pays nothing: spectrum for a run, lexical for logs; with --lm all-at-once]",
)
@_with_run_options
@click.option("--lm", "model", envvar="WORKBENCH_LM", help="Judge model. [default for a run: its proposer or lm]")
@click.option("--api-base", help="Base URL of the judge's OpenAI-compatible server.")
@click.option("--timeout", type=click.FloatRange(min=1), help="Seconds per request.")
@click.option("--concurrency", type=click.IntRange(1), help="Maximum number of concurrent requests.")
@click.option("--votes", type=click.IntRange(1, 99), default=1, show_default=True, help="Number of judgements per log.")
@click.option(
    "--ground-truth/--no-ground-truth",
    default=True,
    show_default=True,
    help="Show the judge the correct answer where known. Answers of sealed rows are never shown.",
)
@click.option(
    "--split", type=click.Choice(["train", "val", "test", "all"]), help="Split of the run to examine. [default: val]"
)
@click.option(
    "--row", "rows", multiple=True, metavar="ROW", help="Examine this row of the run, failed or not. Repeatable."
)
@limit_option("Examine at most this many logs.")
@click.option(
    "--window", type=click.IntRange(300), default=16_000, show_default=True, help="Maximum prompt length in tokens."
)
@click.option(
    "--max-tokens", type=click.IntRange(16), default=512, show_default=True, help="Maximum answer length in tokens."
)
@seed_option(0)
@budget_calls_option(1000)
@DB
@JSON
def attribute_command(
    source: str,
    named: bool,
    form: str | None,
    model: str | None,
    api_base: str | None,
    timeout: float | None,
    concurrency: int | None,
    split: str | None,
    rows: tuple[str, ...],
    limit: int | None,
    budget_calls: int,
    db: str,
    as_json: bool,
    **more: Any,
) -> None:
    """Find the agent and the step that made runs fail.

    Examines the failed rows of RUN, or the logs in FILE: a log or a folder of logs in the format of Who&When, ATIF,
    OpenTelemetry GenAI or OpenInference. Running the same command again costs nothing. Exits with code 1 if the budget
    ran out or no log could be diagnosed.
    """
    from workbench_attribute.repeated import rank_run, replay_run
    from workbench_attribute.replays import ReplayOptions
    from workbench_attribute.settings import Judging

    is_file, judge = not named and _is_file(source), click.get_current_context().get_parameter_source("model")
    free = "lexical" if is_file else "spectrum"
    more["method"] = more["method"] or ("all-at-once" if judge == ParameterSource.COMMANDLINE else free)
    if api_base and not model:
        raise click.UsageError("--api-base needs --lm, the model at that address")
    _check_flags(source, is_file, more)
    lm, of_run = _named_model(model, api_base), {name: more.pop(name) for name in _OF_RUNS}
    if more["method"] == "spectrum":
        done = rank_run(source, split, of_run["passing"], of_run["formula"], db, as_json)
    elif more["method"] == "replay":
        chosen = {name: of_run[name] for name in ("draws", "scan", "passing", "candidate")}
        options = ReplayOptions(of_run["repair"] or "lm", lm, rows=rows, most=limit or 20, calls=budget_calls, **chosen)
        done = replay_run(source, options, db, as_json)
    else:
        settings = Judging.model_validate(more)
        if is_file:
            logs, run = _read_files(source, form, rows, split), None
        else:
            logs, lm, run = _read_run(source, rows, split, form, db, settings, lm)
        given = {"timeout": timeout, "concurrency": concurrency}
        lm = lm and lm.model_copy(update={name: value for name, value in given.items() if value is not None})
        done = _judge(logs[:limit], settings, lm, db, budget_calls, as_json, run)
    sys.exit(0 if done else 1)


def _judge(
    logs: list[Log], settings: Judging, lm: LMSpec | None, db: str, calls: int, as_json: bool, run: str | None
) -> bool:
    """Judge logs of a run or of files (None), and print the findings. Returns True if the budget lasted and a log was
    diagnosed."""
    from workbench_attribute.attribute import attribute
    from workbench_attribute.repeated import SEALED_ROWS

    if any(log.sealed for log in logs):
        say(SEALED_ROWS, err=True)

    def report_progress(done: int, of: int) -> None:
        if not as_json:
            say(f"{done} of {of} logs", err=True)

    found = attribute(logs, settings, lm, database=db, calls=calls, examined=run, on_progress=report_progress)
    if as_json:
        echo_json({**settings.model_dump(mode="json"), "lm": lm.model if lm else None, **found.as_dict()})
    else:
        _print(found, settings)
    return found.complete and any(d.step is not None for d in found.found)


def _check_flags(source: str, is_file: bool, given: dict[str, Any]) -> None:
    """Raise UsageError for an unknown method, and for options that it does not take."""
    from workbench.errors import suggest
    from workbench_attribute.baselines import BASELINES
    from workbench_attribute.methods import METHODS

    method = given["method"]
    if method not in (known := (*METHODS, *OF_RUNS)):
        raise click.UsageError(f"there is no method '{method}'. {suggest(method, known)}")
    if method in OF_RUNS and is_file:
        raise click.UsageError(f"--method {method} needs a run of workbench, and {source} is a file")
    taken = set(_FLAGS["baseline" if method in BASELINES else method if method in OF_RUNS else "judge"].split())
    taken |= {"source", "named", "method", "db", "as_json"}
    if method == "replay" and given["repair"] in (None, "lm"):
        taken |= {"model", "api_base"}
    context = click.get_current_context()
    for option in context.command.params:
        name = str(option.name)
        if name not in taken and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            what = f"--method {method}" + (f" --repair {given['repair']}" if name in ("model", "api_base") else "")
            raise click.UsageError(f"{option.opts[-1]} cannot be combined with {what}")


def _is_file(source: str) -> bool:
    return Path(source).exists() or "/" in source or Path(source).suffix in (".json", ".jsonl", ".yaml", ".yml")


def _named_model(model: str | None, api_base: str | None) -> LMSpec | None:
    from workbench.spec import LMSpec

    return None if model is None else LMSpec.model_validate({"model": model, "api_base": api_base})


def _read_files(source: str, form: str | None, rows: tuple[str, ...], split: str | None) -> list[Log]:
    from workbench.errors import SpecError
    from workbench_kit.logs import load_logs

    if Path(source).suffix in (".yaml", ".yml"):
        raise SpecError(
            f"{source} is a workflow file, not a log",
            hint=f"Score it, then examine the failed rows: workbench eval {source} and workbench agent attribute last.",
        )
    if rows or split:
        raise click.UsageError("--row and --split need a run of workbench, and this is a file of logs")
    logs = load_logs(Path(source), form)
    failed = [log for log in logs if log.score is None or log.score < 1]
    if not failed:
        raise SpecError(f"{source}: no log failed, by the scores in it", hint="Name logs of rows that score below 1.")
    if passed := len(logs) - len(failed):
        say(f"{passed} of {len(logs)} logs passed, by their scores, and are left out.", err=True)
    return failed


def _read_run(
    run: str,
    rows: tuple[str, ...],
    split: str | None,
    form: str | None,
    db: str,
    settings: Judging,
    lm: LMSpec | None,
) -> tuple[list[Log], LMSpec | None, str]:
    """Return the logs of a run, the judge, and the run's name. A model from the run's file is used only if the file is
    trusted: it may send rows and keys to any address."""
    from workbench.cli.trust import require_trust_in_run
    from workbench.store import ReadOnlyStore
    from workbench_attribute.baselines import BASELINES
    from workbench_kit.logs import load_stored_logs, model_of_run

    if form is not None:
        raise click.UsageError("--format needs a file of logs, and this is a run of workbench")
    with ReadOnlyStore(db) as store:
        logs = load_stored_logs(store, run, rows, split)
        if lm is None and settings.method not in BASELINES:
            lm = model_of_run(store, require_trust_in_run(run, db))
        return logs, lm, str(store.find_run(run)["run"])


# Output


def _print(found: Attribution, settings: Judging) -> None:
    rows = [_row(log, d) for log, d in zip(found.logs, found.found, strict=True)]
    head = ("log", "agent", "step", "votes", "calls", "cost")
    widths = [min(40, max(len(row[at]) for row in [head, *rows])) for at in range(len(head))]
    say(f"method: {one_line(settings.method)}{_model_words(found)}")
    say("  ".join(f"{name:<{width}}" for name, width in zip(head, widths, strict=True)) + "  evidence", bold=True)
    for row, d in zip(rows, found.found, strict=True):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        why = f"{d.failure}: {d.evidence}" if d.failure else d.evidence
        say(f"{line}  ", Styled(one_line(why[:300]), "yellow" if d.failure else None))
    _print_sums(found)


def _row(log: Log, d: Diagnosis) -> tuple[str, ...]:
    agent = "-" if d.agent is None else d.agent
    votes = f"{d.confidence * d.votes:.2g}/{d.votes}"
    name = log.row.handle if log.row else log.id
    cells = (name, agent, "-" if d.step is None else str(d.step), votes, str(d.calls), f"${d.usd:.4f}")
    return tuple(one_line(cell if len(cell) <= 40 else f"{cell[:39]}…") for cell in cells)


def _model_words(found: Attribution) -> str:
    return f", run {one_line(found.run)}" if found.run else ", no model asked"


def _print_sums(found: Attribution) -> None:
    for agent, count, share in found.agents()[:MAX_AGENTS]:
        say(one_line(f"{agent}: decided {count} of {len(found.logs)} failures ({share:.0%} of those diagnosed)"))
    if nothing := [d for d in found.found if d.agent is None]:
        kinds = sorted({d.failure or "" for d in nothing})
        say(f"No diagnosis for {len(nothing)} logs: {', '.join(kinds)}")
    if unread := sum(d.unread for d in found.found):
        say(f"{unread} answers of the judge were missing or unreadable")
    _print_accuracy(found)
    if found.run:
        from workbench.store import typed

        paid = found.paid
        say(f"Paid now: {paid['calls']} calls, {paid['tokens']} tokens, ${paid['usd']:.4f}")
        db = click.get_current_context().params["db"]
        say(f"To see this again: {typed(f'workbench show {one_line(found.run)}', db)}")
    if not found.complete:
        say("The budget ran out. To continue, run the same command with a higher --budget-calls.", err=True)


def _print_accuracy(found: Attribution) -> None:
    from workbench_attribute.attribute import score_baselines

    accuracy = found.accuracy()
    if accuracy is None:
        return
    low, high = accuracy.agent95
    say(f"Accuracy on the {accuracy.n} labelled logs:", bold=True)
    say(f"  agent {accuracy.agent:.3f} [{low:.3f}, {high:.3f}]; by the published scorer {accuracy.official_agent:.3f}")
    low, high = accuracy.step95
    say(f"  step {accuracy.step:.3f} [{low:.3f}, {high:.3f}]; by the published scorer {accuracy.official_step:.3f}")
    say("  step within " + ", ".join(f"{k}: {share:.3f}" for k, share in accuracy.within.items() if k))
    for name, parts in score_baselines(found.logs).items():
        say(f"  {name}: agent {parts['agent']:.3f}, step {parts['step']:.3f}")
