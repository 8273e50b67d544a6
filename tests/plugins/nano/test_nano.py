"""bundled/nano: the numbers of transformers, answers that depend on their chat alone, four effects."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT / "plugins") not in sys.path:
    sys.path.insert(0, str(ROOT / "plugins"))

from workbench_nano.model import WEIGHTS, Nano, render  # noqa: E402

GOLDEN = ROOT / "tests" / "data" / "nano_logits.json"
TOPICS = ["billing", "shipping", "account", "technical", "returns"]
CLEAR = "Classify the ticket by the problem that is still open. Ignore solved problems."
STEPS = "Add the numbers. Show the steps."
TEAM = f"Send the ticket to the right team.\nlabel: one of {', '.join(TOPICS)}"
SERVICES = frozenset("lurvi plinto kelvo cobyx dunto velka tarsi boglu fenzo quilo ravik sompa".split())


@pytest.fixture(scope="module")
def nano() -> Nano:
    return Nano.load()


def rows(name: str, count: int) -> list[dict[str, str]]:
    lines = (ROOT / "workflows" / "data" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[-count:]]


def chat(system: str, user: str, *demos: tuple[str, str]) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": system}] if system else []
    for question, answer in demos:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": user}]


def ticket_chats(system: str, count: int) -> tuple[list[list[dict[str, str]]], list[str]]:
    system = f"{system}\nlabel: one of {', '.join(TOPICS)}"
    data = rows("tickets", count)
    return [chat(system, f"text: {r['text']}\nlabel:") for r in data], [r["label"] for r in data]


def mixed_chats() -> list[list[dict[str, str]]]:
    """Short and long, with and without system message, alone and with shared beginnings."""
    chats, _ = ticket_chats(CLEAR, 6)
    demo = ("question: 3 + 4\nsteps:", "3 + 4 = 7\nanswer: 7")
    chats += [chat(STEPS, f"question: {r['question']}\nsteps:", demo) for r in rows("sums", 6)]
    chats += [chat("", f"facts: {r['facts']}\nquestion: {r['question']}\nanswer:") for r in rows("facts", 4)]
    return [*chats, chat("", "Grüß Gott 🙂\n\n  what?")]


def share(answers: list[str], wanted: list[str]) -> float:
    return sum(a.rpartition(": ")[2].strip() == b for a, b in zip(answers, wanted, strict=True)) / len(wanted)


def texts(nano: Nano, chats: list[list[dict[str, str]]], **how) -> list[str]:
    return [c.text for c in nano.generate(chats, **{"max_tokens": 64, **how})]


def test_import_needs_no_numpy():
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'plugins')!r}); import workbench_nano"
    check = "; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code + check], check=True)


def test_weights_are_small_and_complete():
    files = {path.name: path.stat().st_size for path in WEIGHTS.iterdir()}
    assert sum(files.values()) <= 12 * 2**20
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "README.md",
    } <= set(files)


def test_logits_equal_the_golden_ones_of_transformers(nano: Nano):
    for case in json.loads(GOLDEN.read_text()):
        logits = nano.all_logits(case["ids"])[-1]
        assert nano.prompt_ids(case["chat"]) == case["ids"]
        assert np.abs(logits - np.array(case["last_logits"])).max() < 1e-3


@pytest.mark.slow
def test_logits_equal_those_of_transformers_now(nano: Nano):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)
    for messages in mixed_chats():
        ids = nano.prompt_ids(messages)
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits[0].numpy()
        assert np.abs(nano.all_logits(ids) - theirs).max() < 1e-3


def test_chat_template_equals_render(nano: Nano):
    jinja2 = pytest.importorskip("jinja2")
    source = json.loads((WEIGHTS / "tokenizer_config.json").read_text())["chat_template"]
    template = jinja2.Template(source)
    for messages in mixed_chats():
        text = template.render(messages=messages, add_generation_prompt=True)
        assert render(messages) == text
        assert nano.prompt_ids(messages) == nano.tokenizer.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_does_not_depend_on_its_batch(temperature: float):
    chats = mixed_chats()
    seeds = list(range(len(chats)))
    how = {"max_tokens": 40, "temperature": temperature}
    together = Nano.load().generate(chats, seeds=seeds, **how)
    order = random.Random(3).sample(seeds, len(seeds))
    nano = Nano.load()
    shuffled = nano.generate([chats[i] for i in order], seeds=order, **how)
    again = nano.generate(chats, seeds=seeds, **how)  # now with kept prefixes
    for i, messages in enumerate(chats):
        (alone,) = nano.generate([messages], seeds=[i], **how)
        for other in (alone, shuffled[order.index(i)], again[i]):
            assert other.completion_ids == together[i].completion_ids
            assert other.text == together[i].text and other.finish == together[i].finish
            assert np.allclose(other.logprobs, together[i].logprobs, atol=1e-4)


@pytest.mark.slow
def test_a_seed_decides_a_sample(nano: Nano):
    messages = chat("", "question: 3 + 4 + 8 + 2 + 5\nsteps:")
    how = {"max_tokens": 50, "temperature": 1.0}
    first = texts(nano, [messages] * 12, seeds=list(range(12)), **how)
    assert first == texts(nano, [messages] * 12, seeds=list(range(12)), **how)
    assert len(set(first)) > 1
    assert len(set(texts(nano, [messages] * 3, seeds=[1, 2, 3], temperature=0.0, max_tokens=50))) == 1
    near_greedy = texts(nano, [messages], seeds=[5], temperature=1.0, top_p=1e-6, max_tokens=50)
    assert near_greedy == texts(nano, [messages], temperature=0.0, max_tokens=50)


def test_completion_counts(nano: Nano):
    (done,) = nano.generate([chat("", "question: 3 + 4\nsteps:")], max_tokens=50)
    assert done.finish == "stop" and done.completion_ids[-1] == nano.end
    assert len(done.logprobs) == len(done.completion_ids) and max(done.logprobs) <= 0
    (cut,) = nano.generate([chat("", "question: 3 + 4\nsteps:")], max_tokens=2)
    assert cut.finish == "length" and len(cut.completion_ids) == 2 and done.text.startswith(cut.text)


def test_stop_strings(nano: Nano):
    messages = chat("", "question: 3 + 4 + 5\nsteps:")
    whole, stopped = (
        texts(nano, [messages])[0],
        nano.generate([messages], max_tokens=50, stop=["\nanswer"])[0],
    )
    assert "\nanswer" in whole and stopped.text == whole.split("\nanswer")[0] and stopped.finish == "stop"


def test_too_long_a_prompt_tells_the_lengths(nano: Nano):
    with pytest.raises(ValueError, match=r"the prompt has \d+ tokens, but nano reads at most 1023"):
        nano.generate([chat("", "word " * 3000)], max_tokens=2)


def test_so_are_those_of_one_that_no_expression_matches_at_once(nano: Nano):
    with pytest.raises(ValueError, match=r"the prompt has \d+ tokens, but nano reads at most 1023"):
        nano.generate([chat("", "\n" * 600_000)], max_tokens=2)


def test_a_full_context_ends_the_answer(nano: Nano):
    messages = chat(" the" * 1015, "the")
    (answer,) = nano.generate([messages], max_tokens=50, temperature=3.0, seeds=[1])
    assert len(answer.prompt_ids) + len(answer.completion_ids) <= 1024
    assert len(answer.prompt_ids) > 1000 and len(answer.completion_ids) <= 20


def test_unknown_role(nano: Nano):
    with pytest.raises(ValueError, match="roles"):
        nano.generate([[{"role": "tool", "content": "x"}]], max_tokens=2)


@pytest.mark.slow
def test_effect_of_the_instruction(nano: Nano):
    vague, wanted = ticket_chats("Sort the support ticket by topic.", 150)
    clear, _ = ticket_chats(CLEAR, 150)
    low, high = (share(texts(nano, c, max_tokens=6), wanted) for c in (vague, clear))
    assert 0.25 < low < 0.7 and high > low + 0.1


@pytest.mark.slow
def test_effect_of_examples(nano: Nano):
    """Who owns a service, only examples tell: more of them help, and those about the same service help most."""
    every = rows("services", 240)
    pool, asked = every[:120], every[120:]
    services = {r["text"]: next(w for w in r["text"].split() if w in SERVICES) for r in every}
    rng = random.Random(1)

    def score(count: int, similar: bool) -> float:
        chats = []
        for row in asked:
            order = rng.sample(pool, len(pool))
            if similar:
                order.sort(key=lambda other: services[other["text"]] == services[row["text"]], reverse=True)
            demos = [(f"text: {r['text']}\nlabel:", r["label"]) for r in order[:count][::-1]]
            chats.append(chat(TEAM, f"text: {row['text']}\nlabel:", *demos))
        return share(texts(nano, chats, max_tokens=6), [r["label"] for r in asked])

    none, two, eight, two_similar = score(0, False), score(2, False), score(8, False), score(2, True)
    assert none < 0.35 and two > none and eight > two + 0.15, (none, two, eight)
    assert two_similar > max(0.9, two + 0.4), (two, two_similar)


@pytest.mark.slow
def test_effect_of_votes(nano: Nano):
    data = rows("sums", 60)
    chats = [chat(STEPS, f"question: {r['question']}\nsteps:") for r in data]
    wanted = [r["answer"] for r in data]
    samples = []
    for s in range(9):
        found = texts(nano, chats, temperature=1.0, seeds=[1000 * s + i for i in range(60)])
        samples.append([t.rpartition(": ")[2] for t in found])
    single = np.mean([share(s, wanted) for s in samples])
    votes = [Counter(answers).most_common(1)[0][0] for answers in zip(*samples, strict=True)]
    assert share(votes, wanted) > single + 0.05


@pytest.mark.slow
def test_effect_of_steps(nano: Nano):
    data = rows("sums", 150)
    wanted = [r["answer"] for r in data]
    at_once = share(
        texts(nano, [chat("Add the numbers.", f"question: {r['question']}\nanswer:") for r in data]), wanted
    )
    worked = texts(nano, [chat(STEPS, f"question: {r['question']}\nsteps:") for r in data])
    by_steps = share([t.rpartition(": ")[2] for t in worked], wanted)
    assert by_steps > at_once + 0.05, (at_once, by_steps)


def test_answers_are_drawn_with_one_thread_of_blas_which_then_has_its_threads_again(
    nano: Nano, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threadpoolctl import ThreadpoolController

    from workbench_nano.model import ONE_THREAD

    blas = ThreadpoolController().select(user_api="blas")
    monkeypatch.setattr(ONE_THREAD, "_controller", None)  # of an earlier test, which knows no BLAS loaded since

    def threads() -> list[int]:
        return [library["num_threads"] for library in blas.info()]

    if not threads():
        pytest.skip("threadpoolctl knows no setting of this BLAS")
    seen: list[list[int]] = []
    advance = nano._advance
    monkeypatch.setattr(nano, "_advance", lambda *args: (seen.append(threads()), advance(*args)))
    with blas.limit(limits=2):
        before = threads()
        nano.generate([chat("Sort the ticket.", "text: my invoice is wrong")], max_tokens=3)
        assert seen and all(count == 1 for counts in seen for count in counts)
        assert threads() == before
        with ONE_THREAD:  # two at once, as two models in one process: the last to leave gives them back
            with ONE_THREAD:
                pass
            assert set(threads()) == {1}
        assert threads() == before
