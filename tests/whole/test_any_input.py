"""Whatever strangers and models write: workflow files, policies, patches, edits and answers that hypothesis makes.

Each is read, or is one typed error. `contrib/fuzz` goes on from here with a fuzzer, for hours.
"""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from tests.helpers.scripted import make_workflow
from tests.whole.test_long_answers import UNITS

from workbench.errors import NodeError, PluginError, SpecError
from workbench.spec import PolicySpec, Spec, check_spec, load_yaml
from workbench.workflow import Patch, Workflow, parse_signature
from workbench_kit.answers import parse
from workbench_kit.searching import Menu, apply_edit, edit_classes, edit_options, read_edit

QUICK = settings(derandomize=True, max_examples=400, deadline=None)

odd = st.sampled_from(
    [
        "",
        " ",
        "~",
        "null",
        "1e999",
        "nan",
        "a.b",
        "$HOME",
        "\u200b",
        "\ud7ff",
        "x" * 300,
        "a -> b",
        "python:os.system",
        "*",
    ]
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True),
    odd,
    st.text(max_size=6),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd | st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)

# Workflow files

FILE = yaml.safe_load((Path(__file__).parents[2] / "workflows" / "quickstart.yaml").read_text()) | {
    "policy": {"default": "deny", "rules": [{"allow": "look", "when": {"x": {"max": 5}}, "why": "few"}]},
    "seed": 3,
}


def addresses(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The address of every part of a tree."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in ((*prefix, key), *addresses(inner, (*prefix, key)))]


@st.composite
def files(draw: st.DrawFn) -> Any:
    """A workflow file with some of its parts replaced, taken away, renamed or added."""
    tree = copy.deepcopy(FILE)
    for _ in range(draw(st.integers(1, 4))):
        places = addresses(tree)
        if not places:
            break
        *path, last = draw(st.sampled_from(places))
        parent = tree
        for key in path:
            parent = parent[key]
        how = draw(st.sampled_from(["replace", "replace", "drop", "add", "rename"]))
        if how == "drop":
            del parent[last]
        elif how == "replace" or isinstance(parent, list):
            parent[last] = draw(values)
        elif how == "add":
            parent[draw(odd | st.text(max_size=4))] = draw(values)
        else:
            parent[draw(odd | st.text(max_size=4))] = parent.pop(last)
    return tree


@pytest.mark.slow
@QUICK
@given(files(), st.booleans())
def test_a_workflow_file_is_a_spec_or_an_error_with_its_place(tree: Any, flow: bool) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, default_flow_style=flow)
    try:
        spec, source = check_spec(load_yaml(text, "w.yaml"))
    except SpecError as error:
        for one in (error, *error.more):
            assert one.file == "w.yaml" and one.line and one.column, repr(one)
        assert len(str(error)) < 100_000
    else:
        assert isinstance(spec, Spec) and isinstance(source.value, dict)


# Policies


@pytest.mark.slow
@QUICK
@given(
    values, st.sampled_from(["look", "pay", ""]), st.dictionaries(st.sampled_from(["x", "a.b", ""]), values, max_size=2)
)
def test_a_policy_gives_a_verdict_or_is_no_policy(rules: Any, tool: str, arguments: dict[str, Any]) -> None:
    shape = {"default": "deny", "rules": [{"deny": "pay", "when": rules}]} if isinstance(rules, dict) else rules
    with suppress(ValidationError):
        policy = PolicySpec.model_validate(shape)
        assert policy.verdict(tool, arguments)[0] in ("allow", "ask", "deny")


@pytest.mark.slow
@QUICK
@given(st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2), values)
def test_a_rule_more_that_denies_never_allows_more(arguments: dict[str, Any], wanted: Any) -> None:
    rules = [{"allow": "pay", "when": {"x": {"one_of": [wanted]}}}]
    with suppress(ValidationError):
        before = PolicySpec.model_validate({"default": "ask", "rules": rules}).verdict("pay", arguments)[0]
        stricter = [{"deny": "pay", "when": {"y": {"one_of": [wanted]}}}, *rules]
        after = PolicySpec.model_validate({"default": "ask", "rules": stricter}).verdict("pay", arguments)[0]
        assert after in (before, "deny")


# Patches and edits

NODES = {
    "facts": {"predict": "question -> facts: list[str]"},
    "answer": {
        "predict": "question, facts: list[str] -> why, answer: Literal['x', 'y']",
        "instructions": "Answer.",
        "demos": [{"question": "a", "facts": [], "why": "w", "answer": "x"}],
        "decoding": {"max_tokens": 20},
    },
}
ORIGIN = make_workflow(NODES, Path(__file__).parent)
PLACES = [".".join(map(str, place)) for place in addresses(ORIGIN.tree)]


@pytest.mark.slow
@QUICK
@given(st.data())
def test_a_patch_makes_a_valid_workflow_and_can_be_undone_or_is_refused(data: st.DataObject) -> None:
    before = json.dumps(ORIGIN.tree)
    places = (
        st.sampled_from(PLACES) | st.builds("{}.{}".format, st.sampled_from(PLACES), odd | st.text(max_size=3)) | odd
    )
    patch = Patch(
        data.draw(st.dictionaries(places, values, max_size=3)), tuple(data.draw(st.lists(places, max_size=2)))
    )
    try:
        made = ORIGIN.patched(patch)
    except (SpecError, PluginError, KeyError):
        return
    finally:
        assert json.dumps(ORIGIN.tree) == before, "a patch leaves its workflow as it was"
    Workflow(json.loads(json.dumps(made.tree)), made.base).check()
    assert made.patched(patch.inverse(ORIGIN)) == ORIGIN
    assert ORIGIN.patched(Patch.between(ORIGIN, made)) == made


MENU = Menu(lms=["bundled/nano"], tools=["python:math.sqrt"], verifiers=["python:operator.not_"])
WRITTEN = [
    {"edit": name, **edit.model_dump()}
    for name, cls in edit_classes().items()
    for edit in list(cls.options(ORIGIN, MENU))[:2]
]


@pytest.mark.slow
@QUICK
@given(st.data())
def test_an_edit_that_a_model_writes_brings_only_what_is_on_the_menu(data: st.DataObject) -> None:
    written = dict(data.draw(st.sampled_from(WRITTEN)))
    for key in data.draw(st.lists(st.sampled_from(sorted(written)), max_size=2)):
        written[key] = data.draw(values | st.sampled_from(["nodes.answer", "nodes.facts", "python:os.system"]))
    try:
        edit = read_edit(written, ORIGIN, MENU)
    except SpecError:
        return
    brought = edit.brings()
    for what in ("lms", "tools", "verifiers"):
        assert all(one in getattr(MENU, what) for one in getattr(brought, what))
    with suppress(SpecError):
        made = apply_edit(edit, ORIGIN)
        named = [place for place in addresses(made.tree) if place[-1] != "instructions"]
        assert not [p for p in named if str(made.get(".".join(map(str, p)), "")).startswith("python:os")]
        assert made.patch is not None
        assert made.patched(made.patch.inverse(ORIGIN)) == ORIGIN


def test_the_edits_that_are_changed_here_are_all_that_there_are() -> None:
    assert {one["edit"] for one in WRITTEN} == {
        next(name for name, cls in edit_classes().items() if type(edit) is cls) for edit in edit_options(ORIGIN, MENU)
    }


# Answers

SIGNATURES = [
    parse_signature(f"q -> {outputs}")
    for outputs in (
        "a",
        "a: int, b: Literal['x', 'y']",
        "a: list[int], b: dict[str, float], c",
        "a: bool, b: float",
        "a: Optional[int], b: list[str]",
    )
]
pieces = st.sampled_from(
    [*UNITS, "a:", "b: ", "c:", "yes", "x", "[1, 2]", '{"k": 0.5}', "null", "1e999", "-0", "NaN", "٣", "½"]
)
answers = st.lists(pieces | st.text(max_size=5), max_size=12).map("".join)


@QUICK
@given(answers, st.sampled_from(SIGNATURES), st.booleans())
def test_an_answer_is_all_outputs_or_one_failure(text: str, signature: Any, cut: bool) -> None:
    try:
        found, _ = parse(signature, text, cut)
    except NodeError as error:
        assert error.kind in ("unparsed", "cut")
        return
    assert found.keys() == {field.name for field in signature.outputs}
    json.dumps(found)
