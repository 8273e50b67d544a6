"""Time and memory of one optimizer step, ours beside TRL's GRPOTrainer: one process, the two sides taking turns.

    python contrib/bench/training/trl_speed.py [--case llama|wide|nano] [--steps 12]
    python contrib/bench/training/trl_speed.py --device cuda --model SMOLLM2_FOLDER --case 0.5b --case 1.5b --steps 10

Both sides train the same checkpoint from the same prompts, with the same number of rollouts, the same lengths of
answers (planned beforehand: `even`, all as long as allowed, or `ragged`, from an eighth of it upwards), the same reward
of the text, and one update a step. Our side is the whole of `workbench optimize`: workflow, runtime, journal on disk;
its batches are static. TRL runs with what is fastest for it here: all rows in one batch, no gradient checkpointing, no
reference, float32.
Rewards differ between any two texts, so neither side may leave out rows.

Printed: median seconds of a step, of which generation, and the ratio of ours to TRL's with a 95% interval (bootstrap
over the pairs of steps), on the clock and, for machines that others use as well, in CPU seconds.

On a GPU (`--device cuda`) steps are larger (16 x 8 rollouts of up to 256 tokens), products are in bfloat16 on both
sides, TRL also goes through its batch in parts of 32 rows (8 of `1.5b`), and besides: tokens drawn in a second, the
share of the GPU's peak that an update reaches (6 FLOP a weight and token, of H100's dense 989 TFLOP/s; for a whole step
8), and the most memory in each phase, less what the other side holds. `0.5b` and `1.5b` have the shapes of Qwen2.5 with
random weights. Each step is told as it ends.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from shapes import SHAPES, save_shape, save_wide
from tests.helpers.tiny_lm import save

from workbench.run import Options, optimize
from workbench_engine.generation import Generator, Refill, Row
from workbench_training.learner import Learner

ROLLOUTS, RATE, WARM = 8, 1e-5, 2
#: Rows that TRL passes at once on a GPU, where 32 do not fit: an H100 holds both sides.
AT_ONCE = {"1.5b": 8}
PEAK = 989e12  # FLOP/s of an H100 or H200, dense, in bfloat16
REWARD = "def reward(example, prediction, trace):\n    return sum(map(ord, prediction['answer'])) % 997 / 997\n"


@dataclass
class Case:
    """A checkpoint, the longest answer, the texts of the rows (one a task), and where it runs."""

    name: str
    base: str
    longest: int
    texts: list[str]
    device: str = "cpu"
    large: bool = False  # a GPU's sizes and figures

    @property
    def tasks(self) -> int:
        return len(self.texts)


@dataclass
class Clock:
    """Seconds of each step of one side, on the clock and of CPU, and of generation in it; the most bytes of the GPU."""

    side: str
    steps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    drawing: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)  # by phase
    resting: int = 0  # bytes that it holds between its steps
    spent: float = 0.0
    drawn: int = 0
    begun: float = 0.0
    worked: float = 0.0

    @contextmanager
    def phase(self, name: str, into: list[float] | None = None) -> Iterator[None]:
        """Seconds and memory of a part of a step; the GPU is waited for."""
        synchronized()
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        yield
        synchronized()
        seconds = time.perf_counter() - begun
        if name == "draw":
            self.spent += seconds
        if into is not None:
            into.append(seconds)
        if torch.cuda.is_initialized():
            self.peaks[name] = max(self.peaks.get(name, 0), torch.cuda.max_memory_allocated())

    def start(self) -> None:
        synchronized()
        self.spent, self.drawn, self.begun, self.worked = 0.0, 0, time.perf_counter(), time.process_time()

    def stop(self) -> None:
        synchronized()
        self.steps.append(time.perf_counter() - self.begun)
        self.cpu.append(time.process_time() - self.worked)
        self.drawing.append(self.spent)
        self.tokens.append(self.drawn)
        said = f"{self.side}: step {len(self.steps)} in {self.steps[-1]:.2f} s, of which drawing {self.spent:.2f} s"
        print(said, file=sys.stderr, flush=True)  # what a limit of time leaves


def synchronized() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def make_case(name: str, folder: Path, options: argparse.Namespace) -> Case:
    large = options.device != "cpu" or options.toy
    rng, how = random.Random(0), (options.device, large)
    count, longest, widths = (
        (16, 8 if options.toy else 256, (8, 40) if options.toy else (250, 400)) if large else (4, 32, (8, 40))
    )
    texts = ["".join(rng.choice("abcdefghij ") for _ in range(rng.randrange(*widths))) for _ in range(count)]
    if name == "model":
        return Case(name, str(options.model), longest, texts, *how)
    if name in SHAPES:
        return Case(name, str(save_shape(folder / name, name)), longest, texts, *how)
    if name == "nano":
        import workbench_nano

        texts = [
            "my parcel has not come",
            "I was charged twice for one order and want that back, please",
            "it does not start",
            "how do I close my account and what happens to the rest of the month that I have paid",
        ]
        return Case(name, str(Path(workbench_nano.__file__).parent / "weights"), 32, texts, *how)
    if name == "wide":  # a vocabulary that weighs as much as the layers, as in small real models
        return Case(name, str(save_wide(folder / "wide")), longest, texts, *how)
    return Case(name, str(save(folder / "llama", 0, hidden=256, layers=4, positions=1024)), longest, texts, *how)


class Plan:
    """How long the answers of a step are; the same on both sides, since both draw steps from the same seed."""

    def __init__(self, longest: int, ragged: bool):
        self.rng, self.longest, self.ragged = random.Random(1), longest, ragged

    def next(self, count: int) -> list[int]:
        least = max(2, self.longest // 8) if self.ragged else self.longest
        return [self.rng.randint(least, self.longest) for _ in range(count)]


class Gate:
    """Lets two threads take turns: ours waits in `turn` until the other side calls `go`, which returns when ours waits
    again or has ended."""

    def __init__(self) -> None:
        self.may, self.done = threading.Semaphore(0), threading.Semaphore(0)

    def turn(self) -> None:
        self.done.release()
        self.may.acquire()

    def go(self) -> None:
        self.may.release()
        if not self.done.acquire(timeout=600):
            raise TimeoutError("our side has ended or hangs")


def ours(
    case: Case, ragged: bool, steps: int, folder: Path, gate: Gate, clock: Clock, prompts: list[list[int]]
) -> None:
    """`workbench optimize` on the case, a step at each turn."""
    (folder / "reward.py").write_text(REWARD)
    rows = [{"text": text, "part": part} for part in ("train", "val", "test") for text in case.texts]
    for part in ("train", "val", "test"):
        lines = [json.dumps(r) for r in rows if r["part"] == part][: case.tasks if part == "train" else 1]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    spec = {
        "name": "speed",
        "lm": {"model": f"hf:{case.base}", "concurrency": case.tasks * ROLLOUTS},
        "metric": "python:reward.py:reward",
        "data": {part: f"{part}.jsonl" for part in ("train", "val", "test")},
        "nodes": {"say": {"predict": "text -> answer", "decoding": {"max_tokens": case.longest}}},
        "optimize": [
            {
                "grpo": {
                    "schedule": {
                        "steps": steps,
                        "tasks": case.tasks,
                        "rollouts": ROLLOUTS,
                        "evaluate_every": 10**6,
                        "save_every": 10**6,
                    },
                    "learning": {"rate": RATE},
                    "device": case.device,
                }
            }
        ],
        "budget": {"calls": 10**6},
        "concurrency": case.tasks * ROLLOUTS,
    }
    (folder / "speed.yaml").write_text(json.dumps(spec))
    plan, real = Plan(case.longest, ragged), Generator.generate

    def planned(self: Generator, rows: list[Row], refill: Refill | None = None) -> None:
        if len(rows) < case.tasks:  # baseline and proof
            return real(self, rows, refill)
        if not lengths:
            lengths.extend(plan.next(case.tasks * ROLLOUTS))
        for row in rows:
            row.max_tokens = lengths.pop()
            if len(prompts) < case.tasks and row.prompt_ids not in prompts:
                prompts.append(row.prompt_ids)
        ends, self.ends = self.ends, set()
        with clock.phase("draw"):
            real(self, rows, refill)
        self.ends = ends
        for row in rows:
            row.finish, row.text = "stop", row.text if row.text.strip() else "-"
        clock.drawn += sum(len(row.ids) for row in rows)

    lengths: list[int] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told" and data["message"].startswith("step "):
            if not data["figures"].get("grad_norm"):
                print("a step without an update:", data, file=sys.stderr, flush=True)
            clock.stop()
            clock.resting = clock.resting or held()
            gate.turn()
            clock.start()

    Generator.generate = planned  # type: ignore[method-assign]
    optimize(
        folder / "speed.yaml",
        database=folder / "run.db",
        listener=listen,
        options=Options(out=str(folder / "o.yaml"), allow_unproved=True),
    )


def held() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


def theirs(
    case: Case, ragged: bool, steps: int, folder: Path, gate: Gate, clock: Clock, prompts: list[list[int]]
) -> None:
    """TRL's trainer, which gives ours its turn after each step."""
    from datasets import Dataset
    from transformers import LogitsProcessor, LogitsProcessorList, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    loaded = Generator.load(case.base, device="cpu")
    tokenizer, end = loaded.tokenizer, loaded.tokenizer.eos_token_id
    texts = [
        tokenizer.decode(ids).replace("|> ", "|>") for ids in prompts
    ]  # nano's writes a space after special tokens
    assert sorted(tokenizer(texts)["input_ids"]) == sorted(prompts), "the two sides would see other prompts"
    plan = Plan(case.longest, ragged)

    class Planned(LogitsProcessor):
        """Ends each row at its length and no sooner."""

        def __init__(self, start: int, lengths: list[int]):
            self.start, self.lengths = start, torch.tensor(lengths, device=case.device)

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            now = self.lengths == input_ids.shape[1] - self.start + 1
            scores[:, end] = -torch.inf
            scores[now] = -torch.inf
            scores[now, end] = 0.0
            return scores

    class Turns(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.stop()
            clock.resting = clock.resting or held()
            if state.global_step < steps:
                gate.go()
            clock.start()

    count, cuda = case.tasks * ROLLOUTS, case.device != "cpu"
    at_once = min(count, AT_ONCE.get(case.name, 32)) if case.large else count
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=at_once,
        num_generations=ROLLOUTS,
        gradient_accumulation_steps=count // at_once,
        max_completion_length=case.longest,
        max_steps=steps,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        beta=0.0,
        loss_type="grpo",
        gradient_checkpointing=False,
        use_cpu=not cuda,
        bf16=cuda,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=10**6,
        temperature=1.0,
    )
    trainer = GRPOTrainer(
        model=case.base,
        reward_funcs=lambda completions, **_: [sum(map(ord, c)) % 997 / 997 for c in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=tokenizer,
        callbacks=[Turns()],
    )
    real = trainer.model.generate

    def generate(*args: Any, input_ids: Any, **more: Any) -> Any:
        lengths = plan.next(len(input_ids))
        with clock.phase("draw"):
            found = real(
                *args,
                input_ids=input_ids,
                logits_processor=LogitsProcessorList([Planned(input_ids.shape[1], lengths)]),
                **more,
            )
        clock.drawn += sum(lengths)
        return found

    trainer.model.generate = generate
    learn = trainer.compute_loss

    def compute_loss(*args: Any, **more: Any) -> Any:
        with clock.phase("update"):  # without the backward pass, whose memory the next phase sees
            return learn(*args, **more)

    trainer.compute_loss = compute_loss
    clock.start()
    trainer.train()


def interval(a: list[float], b: list[float]) -> list[float]:
    """95% of the ratio of medians, by resampling the pairs of steps."""
    rng, n = random.Random(0), len(a)
    found = []
    for _ in range(2000):
        chosen = [rng.randrange(n) for _ in range(n)]
        found.append(statistics.median(a[i] for i in chosen) / statistics.median(b[i] for i in chosen))
    found.sort()
    return [round(found[49], 3), round(found[1949], 3)]


def compare(name: str, ragged: bool, options: argparse.Namespace) -> dict[str, Any]:
    steps = options.steps
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        case, gate = make_case(name, folder, options), Gate()
        mine, their, updates = Clock("ours"), Clock("TRL"), list[float]()
        prompts: list[list[int]] = []
        real, real_generate = Learner.step, Generator.generate

        def timed(self: Learner, *args: Any, **more: Any) -> dict[str, float]:
            with mine.phase("update", updates):
                return real(self, *args, **more)

        Learner.step = timed  # type: ignore[method-assign]
        total = steps + WARM

        def run() -> None:
            try:
                ours(case, ragged, total, folder, gate, mine, prompts)
            finally:
                gate.done.release()  # nobody waits for what has ended

        job = threading.Thread(target=run, daemon=True)
        mine.start()
        job.start()
        gate.done.acquire()  # ours has done its first step, so its prompts are known
        if not prompts:
            raise RuntimeError("our side ended before its first step")
        theirs(case, ragged, total, folder, gate, their, prompts)
        gate.may.release()
        job.join()
        weights = find_weights(case.base)
        Learner.step, Generator.generate = real, real_generate  # type: ignore[method-assign]
    assert mine.tokens == their.tokens, (mine.tokens, their.tokens)
    cut = slice(WARM, None)
    a, b = mine.steps[cut], their.steps[cut]
    cpus = [mine.cpu[cut], their.cpu[cut]]
    draw_a, draw_b = mine.drawing[cut], their.drawing[cut]
    rest = [[t - d for t, d in zip(t_, d_, strict=True)] for t_, d_ in ((a, draw_a), (b, draw_b))]
    median = statistics.median
    return {
        "case": name,
        "lengths": "ragged" if ragged else "even",
        "steps": len(a),
        "tokens": round(median(mine.tokens[cut])),
        "ours": round(median(a), 3),
        "trl": round(median(b), 3),
        "ratio": round(median(a) / median(b), 3),
        "ci95": interval(a, b),
        "cpu": [round(median(c), 3) for c in cpus],
        "cpu_ratio": round(median(cpus[0]) / median(cpus[1]), 3),
        "cpu_ci95": interval(*cpus),
        "drawing": [round(median(draw_a), 3), round(median(draw_b), 3)],
        "rest": [round(median(r), 3) for r in rest],
        "our_update": round(median(updates[cut]), 3),
        **(on_gpu(weights, mine, their, updates[cut]) if case.large else {}),
    }


def find_weights(base: str) -> int:
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base))
    return sum(p.numel() for p in model.parameters())


def on_gpu(weights: int, mine: Clock, their: Clock, updates: list[float]) -> dict[str, Any]:
    """Tokens a second, shares of the GPU's peak, and GiB by phase: [ours, TRL's]."""
    median, sides = statistics.median, (mine, their)
    tokens = [median(side.tokens[WARM:]) for side in sides]
    drawing, steps = [median(side.drawing[WARM:]) for side in sides], [median(side.steps[WARM:]) for side in sides]
    others = (their.resting - mine.resting, mine.resting)  # TRL's is told while ours rests
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_initialized() else "none",
        "weights": weights,
        "drawn_per_second": [round(n / t) for n, t in zip(tokens, drawing, strict=True)],
        "mfu_update": round(6 * weights * tokens[0] / (median(updates) * PEAK), 4),
        "mfu_step": [round(8 * weights * n / (t * PEAK), 4) for n, t in zip(tokens, steps, strict=True)],
        "max_gib": [
            {phase: round((most - other) / 2**30, 2) for phase, most in side.peaks.items()}
            for side, other in zip(sides, others, strict=True)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["llama", "wide", "nano", *SHAPES], action="append")
    parser.add_argument("--model", type=Path, help="a checkpoint in Hugging Face format, as a further case")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--toy", action="store_true", help="what a GPU would do, with answers of 8 tokens, on a CPU")
    parser.add_argument("--lengths", choices=["even", "ragged"], action="append")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    cases = [
        *(["model"] if options.model else []),
        *(options.case or ([] if options.model else ["llama", "wide", "nano"])),
    ]
    for case in cases:
        for lengths in options.lengths or ("even", "ragged"):
            print(json.dumps(compare(case, lengths == "ragged", options)), flush=True)


if __name__ == "__main__":
    main()
