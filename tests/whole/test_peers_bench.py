"""contrib/bench/peers: the proxy counts, ends and resumes an arm; the table names losses; our arms run as printed."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.helpers.said import Asked, Reply, billed, saying

HERE = Path(__file__).parents[2] / "contrib/bench/peers"
sys.path.insert(0, str(HERE))

from peers import read_results, table  # type: ignore[import-not-found]  # noqa: E402
from proxy import Proxy  # type: ignore[import-not-found]  # noqa: E402

LABELS = ["billing", "technical"]


def ask(url: str, text: str, **settings: float) -> tuple[int, str]:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **settings}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]["message"]


def test_the_proxy_counts_ends_a_search_at_its_ceiling_and_resumes_it(tmp_path: Path) -> None:
    numbers = iter(range(100))

    def reply(asked: Asked) -> object:
        if "broken" in str(asked.body):
            return Reply({"error": {"message": "no"}}, 503)
        return billed(f"{next(numbers)}: {asked.path}", tokens=50)

    with saying(reply) as server, Proxy(server.base.removesuffix("/v1"), tmp_path) as proxy:
        counts = proxy.begin("arm", 3, ["a sealed row"])
        url = f"{proxy.url}/arm"
        assert ask(url, "one") == (200, "0: /v1/chat/completions") and ask(url, "one")[1].startswith("1:")
        assert ask(url, "broken") == (503, "no")
        assert ask(url, "two") == (400, "the ceiling of 3 calls")
        assert ask(url, "text: a sealed row")[1].startswith("2:"), "the last test is apart"
        assert (counts.calls, counts.sealed, counts.refused, counts.prompt) == (3, 1, 1, 100)
        assert counts.failed == 1, "an outage is no wrong answer"
        proxy.begin("rows", 0, ["a card", "a sealed row"], ["not a card", "an example"])
        ceiling = (400, "the ceiling of 0 calls")
        assert [ask(f"{proxy.url}/rows", text) for text in ("not a card", "a card, an example")] == [ceiling, ceiling]
        assert ask(f"{proxy.url}/rows", "an example, and now: a card")[0] == 200

        with (tmp_path / "arm.jsonl").open("a") as file:
            file.write('{"key": "cut sh')
        again = proxy.begin("arm", 9, ["a sealed row"])
        assert [ask(url, text)[1][:2] for text in ("one", "one", "one", "two")] == ["0:", "1:", "4:", "5:"]
        assert again.calls == 4 and again.recalled == 2, "what is new is sent, each answer is given once"
        assert len(server.asked) == 7

        first = ask(url, "one", temperature=0.0)
        other = proxy.begin("other", 9, ())
        assert ask(f"{proxy.url}/other", "one", temperature=0.0) == first and other.calls == other.recalled == 1
        assert ask(f"{proxy.url}/other", "one", temperature=0.7) != ask(f"{proxy.url}/other", "one", temperature=0.7)
    with Proxy("http://127.0.0.1:9", tmp_path) as proxy:
        proxy.begin("late", 9, ())
        assert ask(f"{proxy.url}/late", "one", temperature=0.0) == first, "out of the logs"
        dead = proxy.begin("dead", 9, ())
        assert ask(f"{proxy.url}/dead", "new")[0] == 502 and dead.failed == 1


def test_the_table_has_each_arm_beside_the_best_peer_losses_included(tmp_path: Path) -> None:
    counts = {"calls": 400, "prompt": 1000, "completion": 20, "sealed": 4}

    def write(arm: str, seed: int, scores: list[float], note: str = "") -> None:
        line = {"task": "t", "arm": arm, "seed": seed, "scores": scores, "counts": counts, "note": note}
        with (tmp_path / "results.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    write("gepa", 0, [1.0] * 30 + [0.0] * 10)
    write("textgrad", 0, [1.0] * 10 + [0.0] * 30, "raised")
    write("wb_default", 0, [0.0] * 40)
    write("wb_default", 1, [1.0] * 30 + [0.0] * 10)
    write("wb_default", 1, [0.0] * 40, "a second time")
    lines = [line for line in table(read_results(tmp_path / "results.jsonl")).splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[0] for line in lines] == ["| gepa", "| wb_default", "| textgrad"]
    assert "0.750 [" in lines[0] and "-0.375 [" in lines[1] and "0.375 [" in lines[1] and "raised" in lines[2]


@pytest.mark.slow
def test_our_arms_run_as_printed_and_a_finished_one_is_not_run_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows" / "tickets"
    rows.mkdir(parents=True)
    for name, count in (("train", 12), ("val", 12), ("test", 6)):
        lines = [{"text": f"{name} {n} {LABELS[n % 2]}", "label": LABELS[n % 2]} for n in range(count)]
        (rows / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (rows / "task.json").write_text(json.dumps({"instructions": "Sort.", "labels": LABELS}))

    def reply(asked: Asked) -> object:
        """Right where an example is shown; without one always the first label."""
        messages = asked.body["messages"]
        last = str(messages[-1]["content"])
        return billed(next(label for label in LABELS if label in last) if len(messages) > 2 else LABELS[0])

    def run(server: str, *arms: str) -> str:
        command = [sys.executable, str(HERE / "peers.py"), "--server", server, "--rows", str(tmp_path / "rows")]
        command += ["--out", str(tmp_path / "out"), "--results", str(tmp_path / "results.jsonl")]
        command += [
            "--plot",
            str(tmp_path / "peers.svg"),
            "--venvs",
            str(tmp_path),
            "--seeds",
            "0",
            "--calls",
            "100",
            "--model",
            "m",
        ]
        command += ["--arms", *(arms or ("wb_unchanged", "wb_bootstrap", "gepa"))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with saying(reply) as server:
        said = run(server.base.removesuffix("/v1"))
        sent = len(server.asked)
    assert "tickets.gepa.0: left out" in said and "tickets.wb_unchanged.0: 0.500" in said
    assert "tickets.wb_bootstrap.0: 1.000" in said and "nearest_vote" in said
    assert "wb_bootstrap (1)" in (tmp_path / "peers.svg").read_text()
    found = read_results(tmp_path / "results.jsonl")["tickets, m, 100 calls"]["wb_bootstrap"][0]["counts"]
    assert found["calls"] <= 100 and found["sealed"] == 2 * 6
    assert found["recalled"] == 6, "the rows of the start, which the other arm asked about"
    assert found["calls"] + found["sealed"] == sent
    assert "tickets.wb_bootstrap.0: 1.000" not in run("http://127.0.0.1:9"), "nothing is asked again"
    said = run("http://127.0.0.1:9", "dspy_unchanged_plain")
    assert "tickets.dspy_unchanged_plain.0: the server failed 6 times" in said, "which DSPy scores as wrong answers"
    assert not read_results(tmp_path / "results.jsonl")["tickets, m, 100 calls"]["dspy_unchanged_plain"]
