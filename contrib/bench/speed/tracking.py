"""What `track: otel` adds to an evaluation of a simulated model that answers at once: the worst case.

    python contrib/bench/speed/tracking.py [--rows 2000] [--times 3]

The receiver decodes in a process of its own. Shown are seconds until the last row is scored, in all, and of CPU:
without a tracker, with a receiver that works, and with one that hangs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.helpers.otlp_receiver import otlp_receiver

from workbench.api import evaluate
from workbench_testing.simulated import SimulatedLM, SimulatedPool, write_task


def serve(pipe: Connection) -> None:
    """A receiver that hangs from the first message in the pipe on."""
    with otlp_receiver() as received:
        pipe.send(received.url)
        pipe.recv()
        received.answer = "hang"
        pipe.recv()


def measure(rows: int, track: list[str]) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder, scored = Path(name), list[float]()
        path = write_task(folder, budget={"calls": 2 * rows}, rows=(1, rows, 1))
        path.write_text(json.dumps({**json.loads(path.read_text()), "track": track}))

        def listen(event: str, data: dict[str, object]) -> None:
            if event == "row_scored":
                scored.append(time.monotonic())

        begun, cpu = time.monotonic(), time.process_time()
        report = evaluate(path, database=folder / "run.db", pool=SimulatedPool(SimulatedLM()), listener=listen)
        ended = time.monotonic() - begun
        return f"{scored[-1] - begun:.2f}  {ended:.2f}  {time.process_time() - cpu:.2f}  {'; '.join(report.warnings)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = here.recv()
    measure(options.rows, [])
    for _ in range(options.times):
        print("off  ", measure(options.rows, []))
        print("otel ", measure(options.rows, ["otel"]))
    here.send("hang")
    time.sleep(0.2)
    print("hangs", measure(options.rows, ["otel"]))
    process.terminate()


if __name__ == "__main__":
    main()
