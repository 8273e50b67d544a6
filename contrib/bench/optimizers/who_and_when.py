"""Who&When with a local model: the methods of `workbench agent attribute`, with and without the answer, and baselines.

    python lm_server.py --model MODEL_FOLDER --port 8151
    python contrib/bench/optimizers/who_and_when.py --data WHO_AND_WHEN_FOLDER --api-base http://127.0.0.1:8151/v1
    python contrib/bench/optimizers/who_and_when.py --data WHO_AND_WHEN_FOLDER --table
    python contrib/bench/optimizers/who_and_when.py --data WHO_AND_WHEN_FOLDER --recorded SITE_PACKAGES/catchbench/data

The shortest logs are judged first, one (method, log) after another, until the minutes are over. What was paid for is in
the database: the same command goes on. The table counts the logs that all methods have judged, so that each row of it
is about the same logs; `--table` prints it without asking the model. `--recorded` scores what strong judges once said
of the generated logs, as the package `catchbench` (arXiv 2608.22808) has it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

from workbench.proof import interval
from workbench.spec import lm_spec
from workbench_attribute.attribute import attribute, diagnose_without_model
from workbench_attribute.baselines import BASELINES
from workbench_attribute.diagnosis import Diagnosis
from workbench_attribute.judges import FINDERS
from workbench_attribute.score import Accuracy, expect_random, score
from workbench_attribute.settings import Judging
from workbench_kit.logs import Log, load_logs

VARIANTS = [(method, truth) for truth in (True, False) for method in FINDERS]


def shortest(data: Path, count: int) -> list[Log]:
    logs = [log for log in load_logs(data) if log.has_gold]
    return sorted(logs, key=lambda log: sum(len(step.content) for step in log.steps))[:count]


def judge(args: argparse.Namespace, logs: list[Log]) -> None:
    """Diagnose log by log; each finished one is a line of the results file."""
    done, ends = read_results(args.out), time.monotonic() + 60 * args.minutes
    lm = lm_spec({"model": args.lm, "api_base": args.api_base, "timeout": 600.0, "concurrency": 1})
    for log in logs:
        for method, truth in VARIANTS:
            if (log.id, method, truth) in done or time.monotonic() > ends:
                continue
            judging = Judging.model_validate(
                {"method": method, "ground_truth": truth, "window": args.window, "max_tokens": args.max_tokens}
            )
            found = attribute([log], judging, lm, database=str(args.out.with_suffix(".db"))).found[0]
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(json.dumps({"log": log.id, "method": method, "truth": truth, **found.as_dict()}) + "\n")


def read_results(out: Path) -> dict[tuple[str, str, bool], Diagnosis]:
    found: dict[tuple[str, str, bool], Diagnosis] = {}
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else ():
        row: dict[str, Any] = json.loads(line)
        key = row.pop("log"), row["method"], row.pop("truth")
        found[key] = Diagnosis(**row)
    return found


def print_table(logs: list[Log], out: Path) -> None:
    done = read_results(out)
    logs = [log for log in logs if all((log.id, *variant) in done for variant in VARIANTS)]
    print(f"{len(logs)} logs; {sum(len(log.steps) for log in logs) / max(1, len(logs)):.1f} steps each")
    if not logs:
        return
    print(
        "| method | right answer | agent | step | published scorer: agent, step | within 1, 3 | no diagnosis | calls |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for method, truth in VARIANTS:
        found = [done[log.id, method, truth] for log in logs]
        nothing, calls = sum(d.step is None for d in found), sum(d.calls for d in found)
        print_row(method, "shown" if truth else "hidden", score(found, logs), f"{nothing} | {calls}")
    for name in BASELINES:
        if name != "random":
            found = diagnose_without_model(logs, Judging.model_validate({"method": name}))
            print_row(name, "", score(found, logs), "0 | 0")
    expected = expect_random(logs)
    assert expected is not None
    print(f"| random (on average) | | {expected[0]:.3f} | {expected[1]:.3f} | | | 0 | 0 |")


def print_row(method: str, truth: str, a: Accuracy | None, rest: str) -> None:
    assert a is not None
    agent = f"{a.agent:.3f} [{a.agent95[0]:.3f}, {a.agent95[1]:.3f}]"
    step = f"{a.step:.3f} [{a.step95[0]:.3f}, {a.step95[1]:.3f}]"
    official = f"{a.official_agent:.3f}, {a.official_step:.3f}"
    print(f"| {method} | {truth} | {agent} | {step} | {official} | {a.within[1]:.3f}, {a.within[3]:.3f} | {rest} |")


def print_recorded(data: Path, recorded: Path) -> None:
    """The steps named by the recorded judges, and by arbiters over their votes and the step of `lexical`. What an
    arbiter knows of a judge comes from the other logs (leave one out). Recordings know a log by a digest of its record.
    """
    paths = sorted((data / "Algorithm-Generated").glob("*.json"))
    keys = [digest(json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    logs = [load_logs(path)[0] for path in paths]
    votes = read_votes(recorded, keys)
    votes["lexical"] = [found.step for found in attribute(logs, Judging(method="lexical"), None).found]
    right = {
        name: [float(vote == log.gold_step) for vote, log in zip(said, logs, strict=True)]
        for name, said in votes.items()
    }
    print(f"| judge or arbiter, {len(logs)} logs | step |\n| --- | --- |")
    for name in sorted(right, key=lambda name: -sum(right[name])):
        _print_steps(name, right[name])
    for name, arbiter in ARBITERS.items():
        found = [
            weigh(arbiter(skills(right, at)), {name: said[at] for name, said in votes.items()})
            for at in range(len(logs))
        ]
        _print_steps(name, [float(step == log.gold_step) for step, log in zip(found, logs, strict=True)])


def _print_steps(name: str, right: list[float]) -> None:
    low, high = interval(right)
    print(f"| {name} | {sum(right) / len(right):.3f} [{low:.3f}, {high:.3f}] |")


def read_votes(recorded: Path, keys: list[str]) -> dict[str, list[int | None]]:
    """The step that each judge and method named of each log; None for no answer. Without judges of other logs."""
    renamed = json.loads((recorded / "llm_judge/legacy_run_keys.json").read_text(encoding="utf-8"))["keys"]
    votes: dict[str, list[int | None]] = {}
    for path in sorted(recorded.glob("llm_judge*/whoandwhen__*.json")):
        said = json.loads(path.read_text(encoding="utf-8")).get("predictions", {})
        of = {renamed.get(key, key): found["top"] for key, found in said.items()}
        if of.keys() & set(keys):
            votes[path.stem.removeprefix("whoandwhen__").replace("__", ", ")] = [of.get(key) for key in keys]
    return votes


def skills(right: dict[str, list[float]], without: int) -> dict[str, float]:
    """The share of the other logs in which each judge named the right step, drawn toward one in five."""
    return {name: (sum(hits) - hits[without] + 1) / (len(hits) + 4) for name, hits in right.items()}


def _take_best(skill: dict[str, float], count: int) -> dict[str, float]:
    """Weights of a vote of the best, in which the better one decides a tie."""
    best = sorted(skill, key=lambda name: -skill[name])[:count]
    return {name: 1 + skill[name] / 100 for name in best}


#: From the skill of each judge on other logs to its weight.
ARBITERS = {
    "the best of the other logs": lambda skill: _take_best(skill, 1),
    "a vote of the best three": lambda skill: _take_best(skill, 3),
    "a vote of the best eight": lambda skill: _take_best(skill, 8),
    "a vote of all": lambda skill: _take_best(skill, len(skill)),
    "all by log odds, as if independent": lambda skill: {
        name: max(0.0, math.log(4 * part / (1 - part))) for name, part in skill.items()
    },
}


def weigh(weights: dict[str, float], named: dict[str, int | None]) -> int | None:
    """The step with the most weight; the earlier one of a tie."""
    total: dict[int, float] = {}
    for name, weight in weights.items():
        if (step := named[name]) is not None:
            total[step] = total.get(step, 0.0) + weight
    return min(total, key=lambda step: (-total[step], step), default=None)


def digest(record: dict[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the logs of Who&When")
    parser.add_argument("--out", type=Path, default=Path("who_and_when.jsonl"))
    parser.add_argument("--lm", default="openai/local")
    parser.add_argument("--api-base", default="http://127.0.0.1:8151/v1")
    parser.add_argument("--logs", type=int, default=25, help="so many, the shortest first")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--window", type=int, default=3000)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--table", action="store_true", help="ask nothing, print the table")
    parser.add_argument("--recorded", type=Path, help="data folder of catchbench: ask nothing, score its judges")
    args = parser.parse_args()
    if args.recorded:
        return print_recorded(args.data, args.recorded)
    logs = shortest(args.data, args.logs)
    if not args.table:
        judge(args, logs)
    print_table(logs, args.out)


if __name__ == "__main__":
    main()
