"""Overhead of an evaluation against an echo server with a fixed latency, side by side with dspy.Evaluate.

    python contrib/bench/speed/overhead.py [--url URL]

Without --url it starts `echo_server.py` for itself; with it, any OpenAI-compatible echo server of that latency will do.

The ideal is calls / concurrency x latency. All sides run in this process, on the same rows, one call an example.
"Client alone" sends the same requests without workflow, journal and budget: what it needs above the ideal is HTTP, the
server and the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from workbench.base.concurrency import run_in_loop
from workbench.ledger import Ledger
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.study import Evaluator
from workbench.task import Example
from workbench.workflow import Workflow


def metric(example: Example, prediction, trace) -> float:
    return float(prediction["answer"] != "")


def ours(url: str, rows: list[dict], concurrency: int) -> tuple[float, float]:
    """(seconds, seconds of a replay from the journal)."""
    workflow = Workflow({"nodes": {"answer": {"kind": "predict", "signature": "question -> answer"}}})
    examples = [Example(str(i), row) for i, row in enumerate(rows)]

    async def main() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder) / "bench.db")
            store.execute("insert into runs (run, status, started, spec, options) values ('b', 'running', '', '', '')")
            times = []
            for _ in range(2):
                lm = lm_spec({"model": "openai/echo", "api_base": url, "concurrency": concurrency})
                runtime = Runtime(Ledger(store, 1, BudgetSpec()), lm)
                evaluator = Evaluator(runtime, metric, concurrency)
                evaluator.program(workflow)
                begun = time.perf_counter()
                evaluation = await evaluator.evaluate(workflow, examples)
                times.append(time.perf_counter() - begun)
                assert evaluation.score == 1.0 and not evaluation.failures, evaluation.failures
                await runtime.pool.aclose()
            store.close()
            return times[0], times[1]

    return run_in_loop(main())


def client(url: str, rows: list[dict], concurrency: int) -> float:
    """Seconds for the same requests by our client of OpenAI-compatible servers and nothing else."""
    from workbench.lm import Request, make_lm

    async def main() -> float:
        lm = make_lm(lm_spec({"model": "openai/echo", "api_base": url, "concurrency": concurrency}))
        left = iter(rows)

        async def worker() -> None:
            for row in left:
                message = {"role": "user", "content": f"question: {row['question']}"}
                assert (await lm.complete(Request((message,)))).text

        begun = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        seconds = time.perf_counter() - begun
        await lm.aclose()
        return seconds

    return run_in_loop(main())


def dspys(url: str, rows: list[dict], concurrency: int) -> float:
    import dspy

    lm = dspy.LM("openai/echo", api_base=url, api_key="none", cache=False, num_retries=0)
    devset = [dspy.Example(**row, answer="").with_inputs("question") for row in rows]

    # dspy.Predict would fail on an echo; the adapter's work is kept, its parsing is not asked for.
    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=lm(question)[0])

    evaluate = dspy.Evaluate(
        devset=devset,
        metric=lambda gold, pred, trace=None: float(pred.answer != ""),
        num_threads=concurrency,
        display_progress=False,
    )
    begun = time.perf_counter()
    result = evaluate(Echo())
    assert result.score == 100.0
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="an echo server; default: one of its own")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-dspy", action="store_true")
    args = parser.parse_args()
    with nullcontext(args.url) if args.url else echo_server(args.latency) as url:
        compare(url, args)


@contextmanager
def echo_server(latency: float) -> Iterator[str]:
    """The base URL of an echo server in a process of its own, for as long as the block runs."""
    command = [sys.executable, str(Path(__file__).with_name("echo_server.py")), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def compare(url: str, args: argparse.Namespace) -> None:
    rows = [{"question": f"What is {i} plus {i}?"} for i in range(args.calls)]
    ideal = args.calls / args.concurrency * args.latency
    print(f"ideal {ideal:.3f} s: {args.calls} calls, {args.concurrency} at once, {args.latency} s each")
    found = [ours(url, rows, args.concurrency) for _ in range(args.repeats)]
    fresh, replay = [f for f, _ in found], [r for _, r in found]
    print(f"workbench      {statistics.median(fresh):.3f} s = {statistics.median(fresh) / ideal:.3f} x ideal  {fresh}")
    print(f"  its replay   {args.calls / statistics.median(replay):,.0f} journalled calls a second")
    floor = [client(url, rows, args.concurrency) for _ in range(args.repeats)]
    print(f"client alone   {statistics.median(floor):.3f} s = {statistics.median(floor) / ideal:.3f} x ideal  {floor}")
    if not args.no_dspy:
        theirs = [dspys(url, rows, args.concurrency) for _ in range(args.repeats)]
        print(
            f"dspy.Evaluate  {statistics.median(theirs):.3f} s = {statistics.median(theirs) / ideal:.3f} x ideal"
            f"  {theirs}"
        )


if __name__ == "__main__":
    main()
