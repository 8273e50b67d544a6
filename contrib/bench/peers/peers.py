"""Workbench beside its peers on a real model: same server, rows, seeds, start and calls, in one table.

    python contrib/bench/peers/rows.py DATA rows
    python contrib/bench/peers/peers.py --server http://127.0.0.1:8190 --rows rows --out logs --venvs venvs
    python contrib/bench/peers/peers.py --table --plot docs/pictures/peers.svg

--server: an OpenAI-compatible server with the model, e.g. `llama_server.py` beside this file. --venvs: a folder with a
venv for each peer, `dspy`, `gepa` and `textgrad`, made from the requirements beside this file. Arms of a peer without a
venv are left out, and named.

Every call passes a proxy, which counts it and ends a search at its ceiling; calls on sealed rows are counted apart.
Each finished (task, arm, seed) is a line of --results and is not run again, so that a table may grow over days and
machines; one that was killed, or whose server failed, begins again, and gets what it asked before from the proxy's log
under --out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.proof import interval, paired_proof
from workbench_metrics.floor import vote_of_nearest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from proxy import Counts, Proxy  # noqa: E402
from rows import read_task  # noqa: E402


@dataclass(frozen=True)
class Arm:
    """A side of the comparison. script: what runs it. venv: of the peer; "" for ours. arguments: after the others."""

    script: str
    name: str
    venv: str = ""
    arguments: tuple[str, ...] = ()


def _ours(*names: str) -> dict[str, Arm]:
    return {f"wb_{name}": Arm("workbench_arm.py", name) for name in names}


def _dspy(*names: str) -> dict[str, Arm]:
    """Each with DSPy's own prompts, and with workbench's."""
    own = {f"dspy_{name}": Arm("dspy_arm.py", name, "dspy") for name in names}
    return own | {f"dspy_{name}_plain": Arm("dspy_arm.py", name, "", ("--plain",)) for name in names}


ARMS: dict[str, Arm] = {
    **_ours("unchanged", "default", "chain", "bootstrap"),
    **_dspy("unchanged", "bfrs", "knn", "mipro", "gepa"),
    "gepa": Arm("gepa_arm.py", "gepa", "gepa"),
    "textgrad": Arm("textgrad_arm.py", "textgrad", "textgrad"),
    **_ours("default_proposer", "chain_proposer", "textgrad", "evolve"),
}
#: Of the plot, by how an arm's name begins.
COLOURS = {"wb_": "C0", "dspy_": "C1", "gepa": "C2", "textgrad": "C3"}
#: Finished arms by task and name.
Results = dict[str, dict[str, list[dict[str, Any]]]]
HEAD = "| arm | score | seeds | less the best peer | calls of the search | tokens read / written | |"
#: Peers of the table: what is not ours, and is searched for or chosen.
PEERS = [name for name in ARMS if not name.startswith("wb_") and "unchanged" not in name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8190")
    parser.add_argument("--rows", type=Path, default=Path("rows"))
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder of the logs and the answers of runs")
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl", help="the finished arms, a line each")
    parser.add_argument("--venvs", type=Path, default=Path("venvs"))
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--model", default="Qwen2.5-Coder-0.5B-Instruct, 8 bits", help="what the server serves")
    parser.add_argument("--calls", type=int, default=400, help="of each search; test rows are apart")
    parser.add_argument("--timeout", type=float, default=4 * 3600, help="seconds of one arm")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, and run nothing")
    parser.add_argument("--plot", type=Path, help="draw the table, too (extra `plot`), e.g. peers.svg")
    args = parser.parse_args()
    if not args.table:
        args.out.mkdir(parents=True, exist_ok=True)
        with Proxy(args.server, args.out / "calls" / re.sub(r"\W+", "-", args.model)) as proxy:
            for task in args.tasks or sorted(folder.name for folder in args.rows.iterdir()):
                vote(args.rows / task, args)
                for seed in args.seeds:
                    for name in args.arms:
                        run(task, name, seed, proxy, args)
    found = read_results(args.results)
    print(table(found))
    if args.plot and found:
        draw(found, args.plot)


def run(task: str, name: str, seed: int, proxy: Proxy, args: argparse.Namespace) -> None:
    """Run one arm, unless its line is there."""
    arm, of = ARMS[name], f"{task}.{name}.{seed}"
    made, rows = args.out.resolve() / f"{of}.part", args.rows.resolve() / task
    python = args.venvs.absolute() / arm.venv / "bin/python" if arm.venv else Path(sys.executable)
    if any(line["seed"] == seed for line in read_results(args.results)[_title(task, args)][name]):
        return
    if not python.exists():
        print(f"{of}: left out, as {python} is not there", flush=True)
        return
    _, train, val, test = read_task(rows)
    counts = proxy.begin(of, args.calls, *([row["text"] for row in part] for part in (test, train + val)))
    begun = time.monotonic()
    given = [arm.name, rows, f"{proxy.url}/{of}", seed, args.calls, made, *arm.arguments]
    with made.with_suffix(".txt").open("w") as said:
        command = [python, HERE / arm.script, *given]
        arm_run = subprocess.Popen([*map(str, command)], stdout=said, stderr=said, start_new_session=True)
        try:
            ended = f"exit {code}" if (code := arm_run.wait(args.timeout)) else ""
        except subprocess.TimeoutExpired:
            ended = f"not done in {args.timeout:g} s"
        finally:
            if arm_run.poll() is None:  # and what it started
                os.killpg(arm_run.pid, signal.SIGKILL)
                arm_run.wait()
    if not ended and counts.failed:
        ended = f"the server failed {counts.failed} times, which peers score as wrong answers: run it again"
    if ended:
        print(f"{of}: {ended}, see {made.with_suffix('.txt')}", flush=True)
        return
    found = json.loads(made.read_text())
    made.unlink()
    line = {"task": _title(task, args), "arm": name, "seed": seed, "counts": asdict(counts)}
    _write(args.results, line | {name: found[name] for name in ("scores", "note", "version")}, time.monotonic() - begun)
    print(f"{of}: {sum(found['scores']) / len(found['scores']):.3f}", flush=True)


def _title(task: str, args: argparse.Namespace) -> str:
    """What the rows of one table share."""
    return f"{task}, {args.model}, {args.calls} calls"


def vote(rows: Path, args: argparse.Namespace) -> None:
    """Score what the report of workbench calls the floor: a vote of the nearest rows. Nothing where there is none."""
    scores = list[float]()
    if read_results(args.results)[_title(rows.name, args)]["nearest_vote"]:
        return

    def score(row: Mapping[str, Any], label: Any) -> float:
        scores.append(float(row["label"] == label))
        return scores[-1]

    _, train, _, test = read_task(rows)
    if (found := vote_of_nearest(train, test, ["text"], "label", score)) is not None:
        line = {"arm": "nearest_vote", "seed": 0, "counts": asdict(Counts()), "scores": scores}
        _write(args.results, {"task": _title(rows.name, args), **line, "note": found[1], "version": "no model"})


def read_results(results: Path) -> Results:
    """The lines of a file, by task and by arm. Of an arm's seed the first one counts."""
    found: Results = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, results.read_text(encoding="utf-8").splitlines() if results.exists() else ()):
        own = found[line["task"]][line["arm"]]
        if all(other["seed"] != line["seed"] for other in own):
            own.append(line)
    return found


def _write(results: Path, line: Mapping[str, Any], seconds: float = 0.0) -> None:
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "seconds": round(seconds), "date": when}) + "\n")


def table(results: Results) -> str:
    """The results as Markdown: of each task all arms, the best mean first, each beside the best peer."""
    text = list[str]()
    for task, arms in results.items():
        scores = {name: _means([line["scores"] for line in lines]) for name, lines in arms.items()}
        best = max((name for name in scores if name in PEERS), key=lambda name: sum(scores[name]), default=None)
        text += [f"**{task}**, {len(next(iter(scores.values())))} sealed rows", "", HEAD, "|" + " --- |" * 7]
        for name in sorted(scores, key=lambda name: -sum(scores[name])):
            lines, own = arms[name], scores[name]
            low, high = interval(own)
            less = "" if best in (None, name) else _difference(scores[best], own)
            calls, read, written = (
                f"{sum(line['counts'][kind] for line in lines) / len(lines):,.0f}"
                for kind in ("calls", "prompt", "completion")
            )
            notes = "; ".join(sorted({line["note"] for line in lines if line["note"]})).replace("\n", " ")
            cells = (f"{sum(own) / len(own):.3f} [{low:.3f}, {high:.3f}]", str(len(lines)), less, calls)
            text.append("| " + " | ".join([name, *cells, f"{read} / {written}", notes[:120]]) + " |")
        text.append("")
    return "\n".join(text)


def draw(results: Results, path: Path) -> None:
    """Draw the scores of each task with their 95% intervals, the best on top."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(4.6 * len(results), 5), squeeze=False, sharex=True)
    for place, (task, arms) in zip(axes.flat, results.items(), strict=True):
        scores = {name: _means([line["scores"] for line in lines]) for name, lines in arms.items()}
        names = sorted(scores, key=lambda name: sum(scores[name]))
        for height, name in enumerate(names):
            mean, (low, high) = sum(scores[name]) / len(scores[name]), interval(scores[name])
            colour = next((colour for start, colour in COLOURS.items() if name.startswith(start)), "0.6")
            error = [[max(0.0, mean - low)], [max(0.0, high - mean)]]  # rounded, an end may lie within
            place.errorbar(mean, height, xerr=error, color=colour, marker="o", capsize=2)
        place.set_yticks(range(len(names)), [f"{name} ({len(arms[name])})" for name in names])
        place.set_title("\n".join(task.split(", ", 2)), fontsize=10)
        place.set_xlim(0, 1)
    figure.supxlabel("score on sealed rows, with its 95% interval; in brackets: seeds", fontsize=10)
    figure.tight_layout()
    figure.savefig(path)


def _means(scores: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each row over the seeds."""
    return [sum(row) / len(row) for row in zip(*scores, strict=True)]


def _difference(peer: Sequence[float], own: Sequence[float]) -> str:
    proof = paired_proof(peer, own)
    return f"{proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}]"


if __name__ == "__main__":
    main()
