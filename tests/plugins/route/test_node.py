"""The `route` node: what it refuses, where it sends an input, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench import load
from workbench.errors import SpecError
from workbench.lm import Request
from workbench.task import dump_yaml, written_node
from workbench_route.features import FeatureSpace
from workbench_route.predictor import Linear, Predictor
from workbench_route.reward import SPACE
from workbench_route.router import CallCost, Router

SMALL = {"predict": "text -> label", "instructions": "Small.", "lm": "openai/small", "decoding": {"temperature": 1.0}}
LARGE = {"predict": "text -> label", "instructions": "Large.", "lm": "openai/large"}
DIMS = 64


def word(space: FeatureSpace, text: str, place: int = 0) -> int:
    """The index of a text's only word."""
    texts = [""] * space.texts
    texts[place] = text
    first = space.texts * 9 + space.extras
    return next(i for i in space.extract(texts) if i >= first)


def easy_router(**more: Any) -> Router:
    """Sends what says `easy` to the small model, and the rest to the large one; among answers `good` is the best."""
    space = FeatureSpace(dims=DIMS)
    names = more.pop("candidates", ["small", "large"])
    cheap = Predictor(models=[Linear(bias=-3.0, weights={word(space, "easy"): 6.0})])
    sure = Predictor(models=[Linear(bias=2.0)])
    reward = Predictor(models=[Linear(bias=0.0, weights={word(SPACE, "good", 1): 5.0})])
    return Router(
        rule="value",
        threshold=0.01,
        unit="usd",
        candidates=names,
        reference=names[-1],
        dims=DIMS,
        mean_cost=10.0,
        costs={"small": CallCost(fixed=1.0, per_character=0.0), "large": CallCost(fixed=10.0, per_character=0.0)},
        heads={name: sure if name == names[-1] else cheap for name in names},
        rewards={"small": reward},
        **more,
    )


def route(**settings: Any) -> dict[str, Any]:
    return {"route": {"small": SMALL, "large": LARGE}, **settings}


def say(request: Request) -> str:
    """Each model answers with its name."""
    return "small" if "Small" in str(request.messages[0]["content"]) else "large"


def routed(node: dict[str, Any], texts: list[str], folder: Path, speak: Any = say) -> tuple[list[Any], Script]:
    script = Script(speak)
    folder.mkdir(exist_ok=True)
    outcomes = run_rows(make_workflow({"n": node}, folder), [{"text": t} for t in texts], script, folder / "run.db")
    return outcomes, script


def test_what_was_learned_is_written_with_a_line_for_each_head() -> None:
    """So that a change of one head is one line of a diff."""
    begins = [line.split(":")[0] for line in easy_router().dump().splitlines()]
    assert begins[begins.index('"heads"') :] == ['"heads"', ' "small"', ' "large"', "},", '"rewards"', ' "small"', "}}"]


def test_without_anything_learned_every_input_goes_to_the_reference(tmp_path: Path) -> None:
    outcomes, script = routed(route(), ["easy", "hard"], tmp_path)
    assert [o.prediction["label"] for o in outcomes] == ["large", "large"] and len(script.requests) == 2
    node = make_workflow({"n": route()}, tmp_path).enabled_nodes["n"]
    assert "nothing yet" in node.warnings()[0] and node.max_calls == 1
    first, _ = routed(route(reference="small"), ["easy"], tmp_path / "other")
    assert first[0].prediction["label"] == "small"


def test_an_input_goes_where_the_router_sends_it(tmp_path: Path) -> None:
    outcomes, script = routed(route(learned=easy_router().dump()), ["easy", "hard"], tmp_path)
    assert [o.prediction["label"] for o in outcomes] == ["small", "large"] and len(script.requests) == 2
    notes = outcomes[0].trace.spans[0].notes
    assert notes["route"] == "small" and set(notes["scores"]) == {"small", "large"}


def test_the_threshold_of_the_file_goes_before_the_learned_one(tmp_path: Path) -> None:
    dear = route(learned=easy_router().dump(), threshold=50.0)
    outcomes, _ = routed(dear, ["easy", "hard"], tmp_path)
    assert [o.prediction["label"] for o in outcomes] == ["small", "small"]
    best, _ = routed({**dear, "threshold": 0.0}, ["hard"], tmp_path / "other")
    assert best[0].prediction["label"] == "large"


def test_of_several_answers_the_one_with_the_best_reward_is_taken(tmp_path: Path) -> None:
    spoken = iter(["bad", "good", "bad"])

    def speak(request: Request) -> str:
        return next(spoken)

    node = route(samples={"small": [3]}, learned=easy_router(candidates=["small*3", "large"]).dump())
    outcomes, script = routed(node, ["easy"], tmp_path, speak)
    assert outcomes[0].prediction["label"] == "good" and len(script.requests) == 3
    assert len({r.replica for r in script.requests}) == 3
    made = make_workflow({"n": node}, tmp_path).enabled_nodes["n"]
    assert made.max_calls == 3


def test_a_failed_answer_among_several_costs_nothing_more(tmp_path: Path) -> None:
    node = route(samples={"small": [2]}, learned=easy_router(candidates=["small*2", "large"]).dump())
    outcomes, _ = routed(node, ["easy"], tmp_path, lambda r: "good" if r.replica else "")
    assert outcomes[0].prediction["label"] == "good"
    failed, _ = routed(node, ["easy"], tmp_path / "other", lambda request: "")
    assert failed[0].failure == "empty"


def test_a_replay_pays_for_no_call_again(tmp_path: Path) -> None:
    node = route(samples={"small": [1, 3]}, learned=easy_router(candidates=["small", "small*3", "large"]).dump())
    texts = ["easy one", "hard one", "easy two"]
    _, first = routed(node, texts, tmp_path)
    again, second = routed(node, texts, tmp_path)
    assert first.requests and not second.requests and all(o.failure is None for o in again)


def test_always_shares_its_calls_with_the_routed_workflow(tmp_path: Path) -> None:
    """What the optimizer pays for candidates is not paid again for the router that it makes of them."""
    for number in range(3):
        routed(route(samples={"small": [3]}, always="small", first_sample=number), ["easy"], tmp_path)
    learned = easy_router(candidates=["small*3", "large"]).dump()
    _, script = routed(route(samples={"small": [3]}, learned=learned), ["easy"], tmp_path)
    assert not script.requests


def test_what_was_learned_is_part_of_the_workflows_hash(tmp_path: Path) -> None:
    plain = make_workflow({"n": route()}, tmp_path)
    learned = plain.patched({"nodes.n.learned": easy_router().dump()})
    other = plain.patched({"nodes.n.learned": easy_router(version=1).model_copy(update={"threshold": 0.3}).dump()})
    assert len({plain.hash, learned.hash, other.hash}) == 3


def test_it_survives_a_file(tmp_path: Path) -> None:
    """As the result of a run is written, and as it is loaded to be called."""
    workflow = make_workflow({"n": route(learned=easy_router().dump())}, tmp_path)
    lm = {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1"}
    text = dump_yaml({"name": "routed", "lm": lm, "nodes": {"n": written_node(workflow.nodes["n"])}})
    (tmp_path / "optimized.yaml").write_text(text, encoding="utf-8")
    with load(tmp_path / "optimized.yaml", pool=Script(say)) as loaded:
        assert loaded(text="easy").label == "small" and loaded(text="hard").label == "large"


def test_what_is_written_wrongly_is_named(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (node, said, path) in enumerate(
        [
            ({"route": {"small": SMALL}}, "at least 2", ()),
            ({"route": {"a.b": SMALL, "large": LARGE}}, "cannot be called 'a.b'", ("candidates", "a.b")),
            (route(reference="big"), "reference names no candidate: 'big'", ("reference",)),
            (route(always="smal"), "Did you mean 'small'", ("always",)),
            (route(samples={"smal": [2]}), "samples of no candidate", ("samples", "smal")),
            (route(samples={"small": [0]}), "numbers from 1 to 64", ("samples", "small")),
            (route(samples={"small": []}), "numbers from 1 to 64", ("samples", "small")),
            (route(samples={"small": 3}), "samples", ()),
            (route(on=["label"]), "cannot read 'label'", ("on",)),
            (route(learned="{}"), "not a learned router", ("learned",)),
            (route(learned="weights.pkl"), "not a learned router", ("learned",)),
            (route(learned=easy_router(candidates=["small*3", "large"]).dump()), "learned for small\\*3", ("learned",)),
            (route(learned=easy_router().dump(), embedder="openai/e"), "without an embedder", ("embedder",)),
            (route(threshold=-1.0), "threshold", ()),
            (
                {"route": {"small": SMALL, "large": {**LARGE, "predict": "text -> other"}}},
                "no field in common",
                ("candidates",),
            ),
            (
                {"route": {"small": SMALL, "large": {"predct": "text -> label"}}},
                "no node kind",
                ("candidates", "large"),
            ),
            ({"route": [SMALL, LARGE]}, "candidates", ()),
        ]
    ):
        with subtests.test(node=node):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(SpecError, match=said) as caught:
                make_workflow({"n": node}, folder)
            assert caught.value.path[: 2 + len(path)] == ("nodes", "n", *path)


def test_candidates_may_be_whole_workflows(tmp_path: Path) -> None:
    wider = {"kind": "workflow", "nodes": {"a": {"predict": "text -> draft", "lm": "openai/small"}, "b": dict(SMALL)}}
    node = make_workflow({"n": {"route": {"small": wider, "large": LARGE}}}, tmp_path).enabled_nodes["n"]
    assert node.outputs == ("label",) and node.max_calls == 1
    inner = {"kind": "workflow", "nodes": {"b": dict(SMALL)}}
    learned = easy_router().dump()
    outcomes, _ = routed({"route": {"small": inner, "large": LARGE}, "learned": learned}, ["easy", "hard"], tmp_path)
    assert [o.prediction["label"] for o in outcomes] == ["small", "large"]


def test_the_decision_reads_the_fields_that_it_is_told_to(tmp_path: Path) -> None:
    node = make_workflow({"n": route(on=["kind"])}, tmp_path).enabled_nodes["n"]
    assert node.inputs == ("text", "kind") and node.text_of({"text": "a", "kind": "b"}) == "b"  # type: ignore[attr-defined]
