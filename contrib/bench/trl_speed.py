"""Time of one optimizer step, ours beside TRL's GRPOTrainer: one process, the two sides taking turns.

    python contrib/bench/trl_speed.py [--case llama|wide|nano] [--steps 12]

Both sides train the same checkpoint from the same prompts, with the same number of rollouts, the same lengths of answers
(planned beforehand: `even`, all as long as allowed, or `ragged`, from an eighth of it upwards), the same reward of the
text, and one update a step. Our side is the whole of `workbench optimize`: workflow, runtime, journal on disk. TRL runs
with what is fastest for it here: all rows in one batch, no gradient checkpointing, no reference, float32. Rewards differ
between any two texts, so neither side may leave out rows.

Printed: median seconds of a step, of which generation, and the ratio of ours to TRL's with a 95% interval (bootstrap
over the pairs of steps), on the clock and, for machines that others use as well, in CPU seconds.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.tiny_lm import make_tokenizer, save  # noqa: E402

from workbench.generate import Generator, Row  # noqa: E402
from workbench.run import Options, optimize  # noqa: E402
from workbench_grpo.learner import Learner  # noqa: E402

TASKS, ROLLOUTS, RATE, WARM = 4, 8, 1e-5, 2
REWARD = "def reward(example, prediction, trace):\n    return sum(map(ord, prediction['answer'])) % 997 / 997\n"


@dataclass
class Case:
    """A checkpoint, the longest answer, and the texts of the rows."""

    base: str
    longest: int
    texts: list[str]


@dataclass
class Clock:
    """Seconds of each step of one side, on the clock and of CPU, and of generation in it."""

    steps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    drawing: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    spent: float = 0.0
    drawn: int = 0
    begun: float = 0.0
    worked: float = 0.0

    def start(self) -> None:
        self.spent, self.drawn, self.begun, self.worked = 0.0, 0, time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.steps.append(time.perf_counter() - self.begun)
        self.cpu.append(time.process_time() - self.worked)
        self.drawing.append(self.spent)
        self.tokens.append(self.drawn)


def make_case(name: str, folder: Path) -> Case:
    rng = random.Random(0)
    texts = ["".join(rng.choice("abcdefghij ") for _ in range(rng.randrange(8, 40))) for _ in range(TASKS)]
    if name == "nano":
        import workbench_nano

        texts = ["my parcel has not come", "I was charged twice for one order and want that back, please", "it does not start",
                 "how do I close my account and what happens to the rest of the month that I have paid"]  # fmt: skip
        return Case(str(Path(workbench_nano.__file__).parent / "weights"), 32, texts)
    if name == "wide":  # a vocabulary that weighs as much as the layers, as in small real models
        return Case(str(save_wide(folder / "wide")), 32, texts)
    return Case(str(save(folder / "llama", 0, hidden=256, layers=4, positions=512)), 32, texts)


def save_wide(folder: Path) -> Path:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(
        vocab_size=16384, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=1, pad_token_id=0, bos_token_id=None,
        tie_word_embeddings=True,
    )).save_pretrained(folder)  # fmt: skip
    make_tokenizer().save_pretrained(folder)
    return folder


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
        lines = [json.dumps(r) for r in rows if r["part"] == part][: TASKS if part == "train" else 1]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    spec = {
        "name": "speed", "lm": f"hf:{case.base}", "metric": "python:reward.py:reward",
        "data": {part: f"{part}.jsonl" for part in ("train", "val", "test")},
        "nodes": {"say": {"predict": "text -> answer", "decoding": {"max_tokens": case.longest}}},
        "optimize": [{"grpo": {
            "course": {"steps": steps, "tasks": TASKS, "rollouts": ROLLOUTS, "evaluate_every": 10**6, "save_every": 10**6},
            "learning": {"rate": RATE}, "device": "cpu",
        }}],
        "budget": {"calls": 10**6},
    }  # fmt: skip
    (folder / "speed.yaml").write_text(json.dumps(spec))
    plan, real = Plan(case.longest, ragged), Generator.generate

    def planned(self: Generator, rows: list[Row]) -> None:
        if len(rows) < TASKS:  # baseline and proof
            return real(self, rows)
        begun = time.perf_counter()
        if not lengths:
            lengths.extend(plan.next(TASKS * ROLLOUTS))
        for row in rows:
            row.max_tokens = lengths.pop()
            if len(prompts) < TASKS and row.prompt_ids not in prompts:
                prompts.append(row.prompt_ids)
        ends, self.ends = self.ends, set()
        real(self, rows)
        self.ends = ends
        for row in rows:
            row.finish, row.text = "stop", row.text if row.text.strip() else "-"
        clock.spent += time.perf_counter() - begun
        clock.drawn += sum(len(row.ids) for row in rows)

    lengths: list[int] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told" and data["message"].startswith("step "):
            if not data["figures"].get("grad_norm"):
                print("a step without an update:", data, file=sys.stderr, flush=True)
            clock.stop()
            gate.turn()
            clock.start()

    Generator.generate = planned  # type: ignore[method-assign]
    optimize(
        folder / "speed.yaml", database=folder / "run.db", listener=listen, options=Options(out=str(folder / "o.yaml"))
    )


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
            self.start, self.lengths = start, torch.tensor(lengths)

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            now = self.lengths == input_ids.shape[1] - self.start + 1
            scores[:, end] = -torch.inf
            scores[now] = -torch.inf
            scores[now, end] = 0.0
            return scores

    class Turns(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.stop()
            if state.global_step < steps:
                gate.go()
            clock.start()

    config = GRPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=TASKS * ROLLOUTS, num_generations=ROLLOUTS,
        max_completion_length=case.longest, max_steps=steps, learning_rate=RATE, lr_scheduler_type="constant", beta=0.0,
        loss_type="grpo", gradient_checkpointing=False, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
        save_strategy="no", logging_steps=10**6, temperature=1.0,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=case.base, reward_funcs=lambda completions, **_: [sum(map(ord, c)) % 997 / 997 for c in completions],
        args=config, train_dataset=Dataset.from_dict({"prompt": texts}), processing_class=tokenizer, callbacks=[Turns()],
    )  # fmt: skip
    real = trainer.model.generate

    def generate(*args: Any, input_ids: Any, **more: Any) -> Any:
        begun = time.perf_counter()
        lengths = plan.next(len(input_ids))
        found = real(
            *args,
            input_ids=input_ids,
            logits_processor=LogitsProcessorList([Planned(input_ids.shape[1], lengths)]),
            **more,
        )
        clock.spent += time.perf_counter() - begun
        clock.drawn += sum(lengths)
        return found

    trainer.model.generate = generate
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


def compare(name: str, ragged: bool, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        case, gate = make_case(name, folder), Gate()
        mine, their, updates = Clock(), Clock(), list[float]()
        prompts: list[list[int]] = []
        real, real_generate = Learner.step, Generator.generate

        def timed(self: Learner, *args: Any, **more: Any) -> dict[str, float]:
            begun = time.perf_counter()
            figures = real(self, *args, **more)
            updates.append(time.perf_counter() - begun)
            return figures

        Learner.step = timed  # type: ignore[method-assign]
        total = steps + WARM
        job = threading.Thread(target=ours, args=(case, ragged, total, folder, gate, mine, prompts), daemon=True)
        mine.start()
        job.start()
        gate.done.acquire()  # ours has done its first step, so its prompts are known
        theirs(case, ragged, total, folder, gate, their, prompts)
        gate.may.release()
        job.join()
        Learner.step, Generator.generate = real, real_generate  # type: ignore[method-assign]
    assert mine.tokens == their.tokens, (mine.tokens, their.tokens)
    cut = slice(WARM, None)
    a, b = mine.steps[cut], their.steps[cut]
    cpus = [mine.cpu[cut], their.cpu[cut]]
    draw_a, draw_b = mine.drawing[cut], their.drawing[cut]
    rest = [[t - d for t, d in zip(t_, d_, strict=True)] for t_, d_ in ((a, draw_a), (b, draw_b))]
    median = statistics.median
    return {
        "case": name, "lengths": "ragged" if ragged else "even", "steps": len(a), "tokens": round(median(mine.tokens[cut])),
        "ours": round(median(a), 3), "trl": round(median(b), 3), "ratio": round(median(a) / median(b), 3), "ci95": interval(a, b),
        "cpu": [round(median(c), 3) for c in cpus], "cpu_ratio": round(median(cpus[0]) / median(cpus[1]), 3),
        "cpu_ci95": interval(*cpus),
        "drawing": [round(median(draw_a), 3), round(median(draw_b), 3)], "rest": [round(median(r), 3) for r in rest],
        "our_update": round(median(updates[cut]), 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["llama", "wide", "nano"], action="append")
    parser.add_argument("--lengths", choices=["even", "ragged"], action="append")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.case or ("llama", "wide", "nano"):
        for lengths in options.lengths or ("even", "ragged"):
            print(json.dumps(compare(case, lengths == "ragged", options.steps)), flush=True)


if __name__ == "__main__":
    main()
