"""The rules of the house: what a file may do, how long it is, what it is called and how it speaks (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.helpers.source import (
    CORE,
    ROOT,
    files,
    imported,
    modules,
    named,
    parsed,
    texts,
)

LINES, FUNCTION = 600, 80
LONG = {"contrib/bench/training/trl_speed.py"}


def test_sql_stands_in_the_store() -> None:
    sql = re.compile(r"\s*(select|insert|update|delete|create table)\s", re.IGNORECASE)
    for path in modules(CORE):
        if path.parent.name != "store" and path.name != "sql_process.py":  # whose SQL is about a model's database
            assert not [text for text in texts(path) if sql.match(text)], path


def test_only_the_command_line_knows_click() -> None:
    for path in files("core", "plugins"):
        if any(i.split(".")[0] == "click" for i in imported(path)):
            assert CORE / "cli" in path.parents or path.name == "commands.py", path


#: Modules that make objects, and so run code, of what they read.
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}


@pytest.mark.fault("foreign-code")
def test_nothing_of_ours_reads_pickles_or_runs_code_of_a_checkpoint() -> None:
    """A run, a checkpoint and a cache of somebody else are JSON, SQL and safetensors."""
    found = []
    for path in [*modules(CORE), *modules(ROOT / "plugins")]:
        tree = parsed(path)
        found += [f"{path.name} imports {name}" for name in imported(path) if name.split(".")[0] in UNSAFE]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                trusting = [
                    k.arg
                    for k in node.keywords
                    if k.arg in ("trust_remote_code", "allow_pickle") and ast.unparse(k.value) != "False"
                ]
                if called in ("torch.load", "yaml.load", "yaml.unsafe_load", "pickle.load", "pickle.loads") or trusting:
                    found.append(f"{path.name}: {called}")
    # Messages of a driver and its workers, which have a key in common, or Ray between them. Then what packs and reads
    # sealed rows of its own process; what needs `data import --run-code`; and what only writes: a vLLM server reads
    # handles of tensors as pickles.
    assert sorted(found) == sorted(
        [
            "messages.py imports pickle",
            "messages.py: pickle.loads",
            "messages.py: pickle.loads",
            "dataset.py imports pickle",
            "dataset.py: pickle.loads",
            "pickled.py: dspy.load",
            "in_order.py imports pickle",
            "in_order.py: pickle.loads",
            "weight_transfer.py imports pickle",
        ]
    )


#: A possessive repeat of a group, such as `(?:a|b)*+`.
_POSSESSIVE = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4 do not match them right (gh-106052), and Debian 12 has 3.11.2. `(?>(?:a|b)*)` does."""
    assert _POSSESSIVE.search(r"(?:a|b)*+")
    wrong = [
        f"{path.name}: {text}" for path in files("core", "plugins") for text in texts(path) if _POSSESSIVE.search(text)
    ]
    assert wrong == []


#: What writes to the terminal, or asks there.
_SPEAKS = re.compile(
    r"click\.(echo|secho|style|confirm|prompt|echo_via_pager|pause|progressbar)|echo|secho|print|pprint|input"
    r"|traceback\.print_\w+|(rich|console|self\.console|pprint|above)\.(print|pprint|log|print_json|rule)"
    r"|sys\.__?std(out|err)__\.\w+|sys\.std(out|err)\.(write|writelines|buffer\.write)|Console|faulthandler\.\w+"
)


def test_children_run_python_without_the_current_folder_on_their_path() -> None:
    """`python -m NAME` and `-c` put it first: what lies there would be imported. `python_command` does not."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files("core", "plugins")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.List)
        and [ast.unparse(part) for part in node.elts[:2]] in (["sys.executable", "'-m'"], ["sys.executable", "'-c'"])
    ]
    assert wrong == []


def test_all_output_passes_one_function() -> None:
    """`say` makes visible what a terminal would obey; `alert` does where no command can print. Whoever prints past them
    lets rows, models and servers control the terminal."""
    # The last is a child process, whose output is a pipe that its parent reads.
    allowed = {
        CORE / "cli" / "output.py",
        CORE / "base/text.py",
        ROOT / "plugins/training/workbench_engine/chat_template_process.py",
    }
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in files("core", "plugins")
        if path not in allowed
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and _SPEAKS.fullmatch(name := ast.unparse(node.func))
    ]
    live = [line for line in found if line.startswith("core/workbench/cli/progress.py:") and line.endswith("Console")]
    assert found == live and len(live) == 1, "use workbench.cli.say"
    for path in files("core", "plugins"):
        assert path in allowed or not {"click.echo", "click.style", "rich.print"} & set(imported(path)), path


def test_a_noun_names_one_class() -> None:
    classes = Counter(
        n.name for p in modules(CORE) for n in parsed(p).body if isinstance(n, ast.ClassDef) and n.name[0] != "_"
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_files_and_functions_fit_in_a_head() -> None:
    for name, path in named(files("core", "plugins", "contrib")).items():
        assert name in LONG or len(path.read_text(encoding="utf-8").splitlines()) <= LINES, name
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not name.startswith("contrib"):
                assert (node.end_lineno or 0) - node.lineno < FUNCTION, f"{name}: {node.name}"


_ASKING = re.compile(r"(What|Who|Whom|Whose|Whether|Those|One|How)\b")


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """A docstring says what a function does: "Return True if", "Count", "List", not "Whether", "How many", "What"."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = [
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}: {text.splitlines()[0]}"
        for path in files("core", "plugins")
        for node in ast.walk(parsed(path))
        if isinstance(node, documented) and (text := ast.get_docstring(node)) and _ASKING.match(text)
    ]
    assert not wrong, "\n".join(wrong)
