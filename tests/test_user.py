"""What a new user stumbled over: results that must not be lost, and silence where there was something to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.planted import plant
from workbench.cli import cli, main
from workbench.errors import SpecError, StoreError
from workbench.overrides import apply_overrides
from workbench.run import Options, prepare, resume
from workbench.yamlsource import load_yaml


def test_a_finished_run_keeps_its_proof(tmp_path: Path) -> None:
    """Resumed with a smaller budget it would lose the proof that it has."""
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    assert report.status == "finished"
    with pytest.raises(StoreError, match="is finished, its proof is done"):
        resume("last", database=tmp_path / "run.db", options=Options([("budget.calls", 60)]), pool=lm)
    again = resume("last", database=tmp_path / "run.db", pool=lm)
    assert again.as_dict()["gain"] == report.as_dict()["gain"]


def test_a_run_without_a_candidate_says_so(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, "forge", calls=400)
    assert any("no candidate was made" in line for line in report.lines())
    assert "but nothing was tried: either the optimizers find nothing here" in report.headline()[0]
    report, _ = plant(tmp_path / "two", lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    assert not any("no candidate was made" in line for line in report.lines())
    assert report.as_dict()["untried"] is None and report.headline()[0].endswith(": finished")


def test_a_resumed_run_has_the_sandbox_of_its_start_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.sandbox import choose, chosen

    monkeypatch.delenv("WORKBENCH_SANDBOX", raising=False)
    seen: set[str | None] = set()
    choose("wasm")
    try:
        _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
        for named, taken in ((None, "wasm"), ("linux", "linux")):
            choose(named)
            seen.clear()
            resume("last", database=tmp_path / "run.db", pool=lm, listener=lambda event, data: seen.add(chosen()))
            assert seen == {taken} and chosen() == named
    finally:
        choose(None)


@pytest.mark.parametrize("answer", [None, "x" * 5000])
def test_a_proposer_that_fails_is_told(answer: str | None, tmp_path: Path) -> None:
    """The roles of other language models have no rows of data that would show their failures."""
    from workbench.errors import LMError
    from workbench.lm import Request, Response

    class Silent:
        identity, concurrency = "silent", 4

        async def complete(self, request: Request) -> Response:
            if answer is None:
                raise LMError("too_long", "the prompt is too long")
            return Response(answer, "stop", 5, 5, 0.0)

        def price(self, prompt_tokens: int, completion_tokens: int) -> float:
            return 0.0

        async def aclose(self) -> None:
            pass

    from tests.planted import PlantedLM
    from workbench.run import optimize

    plant(tmp_path, lambda r: 0.3, {"rewrite": {"rounds": 1}}, calls=400, roles={"proposer": "templates/instructions"})
    pool = PlantedLM(lambda r: 0.3)
    pool.get = lambda spec: Silent() if "templates" in spec.model else pool  # type: ignore[method-assign]
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=pool,
                      options=Options(out=str(tmp_path / "o.yaml")))  # fmt: skip
    why = "none of the proposer's 2 answers could be used"
    if answer is None:
        assert "2 of 2 calls of the proposer failed (too_long): the prompt is too long" in report.warnings
        why = "the proposer gave no answer: all 2 of its calls failed (too_long)"
    assert report.as_dict()["untried"] == why and report.status == "finished"
    assert report.headline()[0] == f"workbench run {report.run}: finished, but nothing was tried: {why}"


def test_a_flag_reaches_an_optimizer_that_is_named_without_parameters() -> None:
    source = load_yaml("optimize: [random, evolve]\n", "w.yaml")
    value = apply_overrides(source, [("optimize.1.evolve.children", 3)]).value
    assert value["optimize"] == ["random", {"evolve": {"children": 3}}]


HEAD = "name: l\ndata: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}\nmetric: exact_match(label)\nnodes:\n"
PROGRAM = "  c: {code: 'text -> label', source: \"def f(text):\\n    return 'SOMETHING'\"}\n"


def test_a_run_whose_library_changed_is_not_resumed(tmp_path: Path) -> None:
    library = tmp_path / "library.yaml"
    library.write_text(HEAD + PROGRAM)
    agent = {"agent": "text -> label", "functions": "library.yaml#nodes.c"}
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=900, nodes={"sort": agent})
    library.write_text((HEAD + PROGRAM).replace("SOMETHING", "another"))
    with pytest.raises(StoreError, match="refers to has changed"):
        resume("last", database=tmp_path / "run.db", pool=lm)


@pytest.mark.parametrize("changed", ["inner.yaml", "deeper.yaml", "policy", "inner policy"])
def test_a_run_whose_inner_workflow_or_inherited_policy_changed_is_not_resumed(changed: str, tmp_path: Path) -> None:
    """None of them is part of the workflow's hash. A larger budget is no reason to look away."""
    from workbench.nodes import _make_node

    files = {
        "library.yaml": HEAD + PROGRAM,
        "inner.yaml": HEAD
        + "  first: {predict: 'text -> word', instructions: first}\n  deep: {workflow: deeper.yaml}\n",
        "deeper.yaml": HEAD + "  last: {predict: 'text, word -> note', instructions: last}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    nodes = {"all": {"workflow": "inner.yaml"}, "sort": {"agent": "text -> label", "functions": "library.yaml#nodes.c"}}
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=60, nodes=nodes)
    assert report.status == "budget" and resume("last", database=tmp_path / "run.db", pool=lm).status == "budget"
    file = {"policy": "library.yaml", "inner policy": "inner.yaml"}.get(changed, changed)
    ruled, reworded = (
        files[file] + "policy: {default: deny}\n",
        files[file].replace("instructions: ", "instructions: not "),
    )
    (tmp_path / file).write_text(ruled if "policy" in changed else reworded)
    _make_node.cache_clear()  # another process would read the files again
    for options in (None, Options([("budget.calls", 5000)])):
        with pytest.raises(StoreError, match="refers to has changed"):
            resume("last", database=tmp_path / "run.db", pool=lm, options=options)


@pytest.mark.parametrize(("key", "meant"), [("optinal", "optional"), ("enabld", "enabled"), ("need", "needs")])
def test_a_mistyped_key_of_a_node_is_known_whatever_its_kind(key: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(f"{HEAD}  c: {{predict: 'text -> label', {key}: true}}\n")
    with pytest.raises(SpecError, match=f"unknown key '{key}'") as raised:
        prepare(tmp_path / "w.yaml")
    assert raised.value.hint == f"Did you mean '{meant}'?"


def test_the_providers_that_are_named_are_those_that_one_can_write(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(f"{HEAD}{PROGRAM}lm: zzzz\n")
    with pytest.raises(SpecError, match="no LM provider serves 'zzzz'") as raised:
        prepare(tmp_path / "w.yaml")
    known = str(raised.value.hint).partition("Known: ")[2].rstrip(".").split(", ")
    assert "bundled" in known and "openai" in known and not {"*", "policy"} & set(known)


def test_an_export_says_what_it_wrote_and_leaves_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench import history

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    database = ["--db", str(tmp_path / "run.db")]
    file = tmp_path / "best.yaml"
    done = CliRunner().invoke(cli, ["export", "last", "--out", str(file), *database])
    assert done.output == f"wrote {file}\n" and file.is_file()
    refuse = True

    def exporter(workflow: object, out: Path) -> None:
        out.mkdir(parents=True)
        if refuse:
            raise SpecError("not this one")
        (out / "serve.sh").write_text("")

    get = history.plugins().get
    monkeypatch.setattr(history.plugins(), "get", lambda hook, name: exporter if name == "x" else get(hook, name))
    words = ["export", "last", "--format", "x", "--out", str(tmp_path / "new" / "folder"), *database]
    assert isinstance(CliRunner().invoke(cli, words).exception, SpecError)
    assert not (tmp_path / "new").exists()
    refuse = False
    assert CliRunner().invoke(cli, words).output == f"wrote {tmp_path / 'new' / 'folder'}: serve.sh\n"


def test_references_hold_inside_a_workflow_of_another_file(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    outer, inner, library = tmp_path / "outer.yaml", deep / "inner.yaml", deep / "library.yaml"
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{i}", "label": "a"}}\n' for i in range(9)))
    library.write_text(HEAD + PROGRAM)
    inner.write_text(HEAD + "  sort: {agent: 'text -> label', functions: library.yaml#nodes.c}\n")
    outer.write_text(HEAD + "  all: {workflow: deep/inner.yaml}\n")
    done = CliRunner().invoke(cli, ["validate", str(outer)])
    assert done.exit_code == 0, done.exception
    inner.with_name("ring.yaml").write_text(HEAD + "  sort: {agent: 'text -> label', functions: other.yaml#nodes.c}\n")
    inner.with_name("other.yaml").write_text(HEAD + "  c: {agent: 'text -> label', functions: ring.yaml#nodes.sort}\n")
    outer.write_text(HEAD + "  all: {workflow: deep/ring.yaml}\n")
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(outer)])
    assert ended.value.code == 2


def test_a_model_that_refuses_every_request_ends_the_run(tmp_path: Path) -> None:
    """A mistyped name of a provider reaches LiteLLM, which knows no such model."""
    from tests.planted import PlantedLM
    from workbench.errors import LMError
    from workbench.lm import Request, Response
    from workbench.run import optimize

    class Refusing(PlantedLM):
        async def complete(self, request: Request) -> Response:
            self.requests += 1
            raise LMError("bad_request", "no provider 'bundeld'")

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    pool = Refusing(lambda r: 0.3)
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=pool,
                      options=Options(out=str(tmp_path / "o.yaml")))  # fmt: skip
    assert report.status == "failed" and "no provider 'bundeld'" in (report.error or "")
    assert pool.requests <= 24, "the rows of val and no more"


def test_show_says_what_the_report_said(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    shown = CliRunner().invoke(cli, ["show", "--db", str(tmp_path / "run.db")])
    assert shown.exit_code == 0, shown.output
    for line in report.lines():
        assert line in shown.output


def test_show_names_the_failed_rows_with_what_they_said(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    args = ["show", "--failures", "--db", str(tmp_path / "run.db")]
    failed = json.loads(CliRunner().invoke(cli, [*args, "--json"]).output)["failures"]
    assert len(failed) > 10 and all(f["inputs"]["text"].startswith("test ") for f in failed)
    shown = CliRunner().invoke(cli, args).output
    assert f'  {failed[0]["example"]}: {failed[0]["feedback"]}\n    text: "{failed[0]["inputs"]["text"]}"\n' in shown
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write('{"text": "one more: a a-thing", "label": "a"}\n')
    others = CliRunner().invoke(cli, [*args, "--json"])
    assert others.exit_code == 0 and all(f["inputs"] is None for f in json.loads(others.output)["failures"])


def test_show_of_an_eval_says_where_its_calls_are(tmp_path: Path) -> None:
    from workbench.single import evaluate_file

    lone = ["--db", str(tmp_path / "eval.db")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"{i}", "label": "a"}) + "\n" for i in range(9)))
    (tmp_path / "w.yaml").write_text(json.dumps({
        "name": "one", "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 3}}, "metric": "exact_match(label)", "budget": {"calls": 20},
        "nodes": {"sort": {"predict": "text -> label"}}}))  # fmt: skip
    found = evaluate_file(tmp_path / "w.yaml", "val", [], str(tmp_path / "eval.db"))
    shown = CliRunner().invoke(cli, ["show", found["run"], *lone]).output
    assert f"workbench show {found['run']} --calls 3" in shown and "candidates:" not in shown
    assert "call " in CliRunner().invoke(cli, ["show", found["run"], "--calls", "3", *lone]).output


def test_show_does_without_the_lines_of_a_report(tmp_path: Path) -> None:
    """Reports of older versions are stored without them."""
    from workbench.store import Store

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    store = Store(tmp_path / "run.db")
    store.execute("update runs set report = json_remove(report, '$.lines')")
    store.close()
    shown = CliRunner().invoke(cli, ["show", "--db", str(tmp_path / "run.db")])
    assert shown.exit_code == 0 and "candidates:" in shown.output, shown.exception


def test_what_was_written_out_but_not_changed_is_no_change(tmp_path: Path) -> None:
    """The search sets a value that is in force anyway, beside one that helps."""
    space = {"nodes.sort.samples": [1], "nodes.sort.instructions": ["Plain.", "Better."]}
    report, _ = plant(tmp_path, lambda r: 0.9 if "Better" in str(r.messages[0]) else 0.2, {"random": {"trials": 6}},
                      calls=500, search=space)  # fmt: skip
    assert [c[0] for c in report.changes] == ["nodes.sort.instructions"]


def test_a_killed_run_is_not_running(tmp_path: Path) -> None:
    from workbench.store import RunLock, Store

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    store = Store(tmp_path / "run.db")
    store.execute("update runs set status = 'running'")  # as a kill leaves it: nobody has the lock
    listed = CliRunner().invoke(cli, ["runs", "--db", str(tmp_path / "run.db")]).output
    assert "killed" in listed and "gain" not in listed
    with RunLock(store, store.find_run("last")["run"]):
        assert "running" in CliRunner().invoke(cli, ["runs", "--db", str(tmp_path / "run.db")]).output
    store.close()
    shown = CliRunner().invoke(cli, ["show", "--db", str(tmp_path / "run.db")]).output
    assert "workbench resume" in shown and "It ended before" in shown


def test_an_input_without_a_name_is_refused(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "workflow.yaml"), "--input", '{"text": "a"}'])
    assert found.exit_code == 2 and "is not FIELD=VALUE" in found.output


def test_a_budget_that_is_too_small_for_the_proof_is_told_at_the_start(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    done = CliRunner().invoke(cli, ["estimate", str(tmp_path / "workflow.yaml"), "--set", "budget.calls=50"])
    assert "Warning: the budget of 50 calls may be too small" in done.output and "take 104" in done.output


@pytest.mark.parametrize(
    ("model", "meant"),
    [("opnai/gpt-4.1-mini", "openai/gpt-4.1-mini"), ("olama/x", "ollama/x"), ("vllm/x", ""), ("anthropic/x", ""),
     ("litellm/opnai/x", "")],
)  # fmt: skip
def test_a_mistyped_provider_is_told_where_it_stands(model: str, meant: str, tmp_path: Path) -> None:
    """What LiteLLM serves is nobody's typo."""
    from workbench.spec import load_spec
    from workbench.task import check_lms

    (tmp_path / "w.yaml").write_text(f"{HEAD}{PROGRAM}lm: bundled/nano\nroles:\n  proposer: {model}\n")
    spec, source = load_spec(tmp_path / "w.yaml")
    if not meant:
        return check_lms(spec, source)
    with pytest.raises(SpecError, match="there is no LM provider") as raised:
        check_lms(spec, source)
    assert f"Did you mean '{meant}'" in str(raised.value.hint)
    assert (raised.value.line, raised.value.column) == (8, 3)


def test_a_single_run_shows_the_row_that_it_took(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "t{i}", "label": "label {i}"}}\n' for i in range(9)))
    (tmp_path / "workflow.yaml").write_text(HEAD + PROGRAM)
    words = ["run", str(tmp_path / "workflow.yaml"), "--db", str(tmp_path / "run.db")]
    taken = prepare(tmp_path / "workflow.yaml", ())[2].dataset.val[1]
    done = CliRunner().invoke(cli, [*words, "--example", "1"])
    assert done.output.startswith(f"row 1 of val\n  text: {taken['text']}\n  label: {taken['label']}\n"), done.output
    assert "of val" not in CliRunner().invoke(cli, [*words, "--input", "text=x"]).output


@pytest.mark.parametrize("out", ["folder", "test.jsonl/x.yaml"])
def test_a_result_that_could_not_be_written_is_refused_before_anything_is_paid(out: str, tmp_path: Path) -> None:
    from workbench.errors import SpecError
    from workbench.run import optimize

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match="--out"):
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", options=Options(out=str(tmp_path / out)))
    assert not (tmp_path / "two.db").exists()
    done = CliRunner().invoke(
        cli, ["export", "--db", str(tmp_path / "run.db"), "--out", str(tmp_path / "new" / "x.yaml")]
    )
    assert done.exit_code == 0 and (tmp_path / "new" / "x.yaml").is_file()


def test_a_place_that_went_away_while_it_ran_loses_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.session.write_workflow", full)
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    assert report.status == "finished" and report.workflow is None and report.proof is not None
    assert any("No space left" in w and "workbench export" in w for w in report.warnings)


def test_a_python_metric_that_changed_is_no_basis_to_go_on(tmp_path: Path) -> None:
    from workbench.errors import StoreError
    from workbench.run import resume

    (tmp_path / "met.py").write_text(
        "def m(example, prediction):\n    return example['label'] == prediction['label']\n"
    )
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, metric="python:met.py:m")
    (tmp_path / "met.py").write_text("def m(example, prediction):\n    return 0.5\n")
    with pytest.raises(StoreError, match="has changed since it started"):
        resume("last", database=tmp_path / "run.db")


def test_an_eval_that_nobody_answered_has_no_score(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"{i}", "label": "a"}) + "\n" for i in range(9)))
    (tmp_path / "w.yaml").write_text(json.dumps({
        "name": "one", "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 3}}, "budget": {"calls": 20},
        "lm": {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "attempts": 1}, "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}}}))  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(tmp_path / "w.yaml"), "--db", str(tmp_path / "e.db")])
    assert ended.value.code == 1


def test_rows_without_a_field_are_told_wherever_they_stand(tmp_path: Path) -> None:
    from workbench.run import prepare

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    for name, odd in (("val", 0), ("test", 5)):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        del rows[odd]["label"]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    warnings = prepare(tmp_path / "workflow.yaml")[2].dataset.warnings
    assert [w.partition(", e.g.")[0] for w in warnings] == [
        "1 of the 24 val rows have no field 'label'", "1 of the 40 test rows have no field 'label'"]  # fmt: skip


def test_a_row_and_inputs_exclude_each_other(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "workflow.yaml"), "--input", "text=a", "--example", "1"])
    assert found.exit_code == 2 and "exclude each other" in found.output
