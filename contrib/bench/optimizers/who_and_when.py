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
    """The steps named by the recorded judges, all logs at once. Recordings know a log by a digest of its record."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (data / "Algorithm-Generated").glob("*.json")]
    steps = {digest(record): str(record["mistake_step"]) for record in records}
    rows: list[tuple[float, str]] = []
    for path in sorted(recorded.glob("llm_judge_addendum/whoandwhen__all_at_once__*.json")):
        said = json.loads(path.read_text(encoding="utf-8")).get("predictions", {})
        right = [float(str(found["top"]) == steps[key]) for key, found in said.items() if key in steps]
        if right:
            mean, (low, high) = sum(right) / len(right), interval(right)
            name = path.stem.removeprefix("whoandwhen__all_at_once__")
            rows.append((mean, f"| {name} | {len(right)} | {mean:.3f} [{low:.3f}, {high:.3f}] |"))
    print("| recorded judge | logs | step |\n| --- | --- | --- |")
    print("\n".join(line for _, line in sorted(rows, reverse=True)))


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
