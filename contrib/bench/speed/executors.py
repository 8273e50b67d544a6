"""Calls a second of an executor by its workers, and the driver's CPU for each call.

    python contrib/bench/speed/executors.py --executor ray [--workers 1 2 4 8] [--each 8] [--latency 0.2]

Rows make one call to an echo server with a fixed latency. Each worker has `--each` rows at once, so the ideal is
workers x each / latency. Measured between the first and the last tenth of the calls, in which all workers are busy.
`--executor local` is the same without workers, with all rows in this process.

Printed for each number of workers: calls a second, their ratio to workers times the first line's, the share of the
ideal, and milliseconds of CPU of this process for each call.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from overhead import echo_server

from workbench.evaluation import EvalOptions, evaluate


def measure(executor: str, url: str, workers: int, each: int, latency: float, seconds: float) -> tuple[float, float]:
    """(calls a second, CPU seconds of this process a call)."""
    rows = int(workers * each / latency * seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [json.dumps({"question": f"number {i}", "answer": "x"}) for i in range(rows)]
        (folder / "rows.jsonl").write_text("\n".join(lines))
        settings = {"workers": workers, **({"num_cpus": 0.0} if executor == "ray" else {})}
        file = folder / "workflow.yaml"
        value = {
            "name": "echo",
            "lm": {
                "model": "openai/echo",
                "api_base": url,
                "concurrency": each * (workers if executor == "local" else 1),
            },
            "data": {"val": "rows.jsonl"},
            "metric": "exact_match(answer)",
            "nodes": {"answer": {"predict": "question -> answer"}},
            "concurrency": workers * each,
            "executor": "local" if executor == "local" else {executor: settings},
            "budget": {"calls": rows + 10},
        }
        file.write_text(json.dumps(value))
        marks: list[tuple[float, float]] = []

        def listen(event: str, data: dict[str, Any]) -> None:
            if event == "call_settled":
                marks.append((time.perf_counter(), time.process_time()))

        evaluate(file, options=EvalOptions(split="val"), database=folder / "run.db", listener=listen)
    first, last = marks[rows // 10], marks[-rows // 10]
    calls = rows - 2 * (rows // 10)
    return calls / (last[0] - first[0]), (last[1] - first[1]) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", default="ray")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement, about")
    asked = parser.parse_args()
    alone = 0.0
    with echo_server(asked.latency) as url:
        print("workers  calls/s  of linear  of ideal  driver ms/call")
        for workers in asked.workers:
            rate, cpu = measure(asked.executor, url, workers, asked.each, asked.latency, asked.seconds)
            alone = alone or rate / workers
            ideal = rate / (workers * asked.each / asked.latency)
            print(
                f"{workers:7d}  {rate:7.1f}  {rate / alone / workers:9.2f}  {ideal:8.2f}  {cpu * 1000:14.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
