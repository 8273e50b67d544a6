"""Calls a second of an executor by its workers, and the driver's CPU for each call.

    python contrib/bench/speed/executors.py --executor ray [--workers 1 2 4 8] [--each 8] [--latency 0.2]
    python contrib/bench/speed/executors.py --kind code --each 1 --workers 1 2
    python contrib/bench/speed/executors.py --kind hf --each 1 --workers 1 2

Rows make one call to an echo server with a fixed latency; or they compute: code in the sandbox (`code`), or a tiny
model in the worker (`hf`). Each worker has `--each` rows at once, so the ideal of the echo server is workers x each /
latency. Measured between the first and the last tenth of the rows, in which all workers are busy.
`--executor local` is the same without workers, with all rows in this process.

Printed for each number of workers: calls a second, their ratio to workers times the first line's, the share of the
ideal, and milliseconds of CPU of this process for each call.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
from overhead import echo_server

from workbench.evaluation import EvalOptions, evaluate

CODE = """def work(question):
    total = 0
    for n in range(2_000_000):
        total += n * n % 7
    return str(total)
"""


def settings_of(kind: str, url: str, folder: Path, each: int) -> dict[str, Any]:
    """Model and nodes of a row of a kind."""
    echo = {"model": "openai/echo", "api_base": url, "concurrency": each}
    ask = {"answer": {"predict": "question -> answer"}}
    if kind == "code":
        return {"lm": echo, "nodes": {"answer": {"code": "question -> answer", "source": CODE}}}
    if kind == "hf":
        from tests.helpers.tiny_lm import save

        save(folder / "weights", hidden=512, layers=6)
        return {"lm": {"model": f"hf:{folder / 'weights'}", "concurrency": each, "max_tokens": 48}, "nodes": ask}
    return {"lm": echo, "nodes": ask}


def measure(kind: str, executor: str, url: str, workers: int, each: int, rows: int) -> tuple[float, float]:
    """(rows a second, CPU seconds of this process a row)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [json.dumps({"question": f"number {i}", "answer": "x"}) for i in range(rows)]
        (folder / "rows.jsonl").write_text("\n".join(lines))
        settings = {"workers": workers, **({"num_cpus": 1.0 if kind == "hf" else 0.0} if executor == "ray" else {})}
        value = {
            "name": kind,
            "data": {"val": "rows.jsonl"},
            "metric": "exact_match(answer)",
            "concurrency": workers * each,
            "executor": "local" if executor == "local" else {executor: settings},
            "budget": {"calls": rows + 10},
            **settings_of(kind, url, folder, each * (workers if executor == "local" else 1)),
        }
        (folder / "workflow.yaml").write_text(json.dumps(value))
        marks: list[tuple[float, float]] = []

        def listen(event: str, data: dict[str, Any]) -> None:
            if event == "row_scored":
                marks.append((time.perf_counter(), time.process_time()))

        options = EvalOptions(split="val")
        evaluate(folder / "workflow.yaml", options=options, database=folder / "run.db", listener=listen)
    first, last = marks[rows // 10], marks[-rows // 10]
    counted = len(marks[rows // 10 : -rows // 10])
    return counted / (last[0] - first[0]), (last[1] - first[1]) / counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("echo", "code", "hf"), default="echo")
    parser.add_argument("--executor", default="ray")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement of the echo server, about")
    parser.add_argument("--rows", type=int, default=60, help="for each worker, where rows compute")
    asked = parser.parse_args()
    alone = 0.0
    with echo_server(asked.latency) as url:
        print("workers  rows/s  of linear  of ideal  driver ms/row")
        for workers in asked.workers:
            most = workers * asked.each / asked.latency
            rows = int(most * asked.seconds) if asked.kind == "echo" else asked.rows * workers
            rate, cpu = measure(asked.kind, asked.executor, url, workers, asked.each, rows)
            alone = alone or rate / workers
            ideal = f"{rate / most:8.2f}" if asked.kind == "echo" else "        "
            print(f"{workers:7d}  {rate:6.1f}  {rate / alone / workers:9.2f}  {ideal}  {cpu * 1000:13.2f}", flush=True)


if __name__ == "__main__":
    main()
