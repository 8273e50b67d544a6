"""What `validate --deep` finds, and what it leaves alone."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

PLANTED = "tests/task/test_planted_defects.py"
WORDS = "tests/kit/test_prompt_defects.py"
CHECKED: list[Mutant] = [
    *changes_of(
        "core/workbench/spec/patterns.py",
        "tests/spec/test_patterns.py",
        ("if content in _STARTS and before + total and", "if content in _STARTS and total and", "text before a group"),
        ("ended = ended or (content in _ENDS and", "ended = (content in _ENDS and", "the first end counts, too"),
        ("width and not _takes_newline(kind, content)", "width", "$ also stands before a last newline"),
        ("return least * _width(", "return _width(", "repetitions count"),
        ("    return min(widths, default=0)", "    return max(widths, default=0)", "the shortest alternative"),
        ("return negated is not any(", "return any(", "sets that exclude"),
        ("timeout=SECONDS", "timeout=60", "a search ends"),
    ),
    *changes_of(
        "core/workbench/base/code_outline.py",
        PLANTED,
        (
            "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)",
            "ast.Lambda)",
            "returns of inner functions",
        ),
        ("return not isinstance(function.body[-1], ast.Raise)", "return True", "what raises is not meant to return"),
        ('kept <= {"cache", "lru_cache"}', "True", "a decorator may describe a tool"),
    ),
    *changes_of(
        "core/workbench/kit/acting/tool_defects.py",
        PLANTED,
        ("if not described and not doc.strip():", "if not doc.strip():", "descriptions of the node"),
        (
            "known = argument.annotation is not None or",
            "known = argument.annotation is not None and",
            "told by the docstring",
        ),
        ("if argument.arg not in hidden and not known:", "if not known:", "filled-in arguments"),
        ("if function.args.kwarg is None else []", "", "what takes any argument"),
        ("if not flags and _SCRIPT", "if _SCRIPT", "what stands behind -c is not a file"),
    ),
    *changes_of(
        "core/workbench/kit/prompting/prompt_defects.py",
        WORDS,
        ('    if "python" in tools or', "    if", "what Python calls is not listed"),
        ("if _is_negated(text, found.start()) or behind", "if behind", "a tool that must not be used"),
        (
            "    return any(not _is_negated(text, found.start()) for",
            "    return any(True for",
            "a form that must not be used",
        ),
        ("        if closed or len(outputs) > 1:", "        if True:", "one free text may be JSON"),
        ("if value is None or (not field.values", "if (not field.values", "a demo may lack a field"),
        (
            "        if wrong := [value for value in named if value not in allowed]:",
            "        if wrong := named:",
            "allowed values",
        ),
    ),
    *changes_of(
        "core/workbench/task/lint.py",
        PLANTED,
        ("values = _closed_inputs(task, name) if inner is node else {}", "values = {}", "values of a branch"),
        ('sure = sources and not trees[sources[-1]].get("optional")', "sure = sources", "an optional writer may fail"),
        ("if not _is_meant(task, defect, path, inner, filled):", "if True:", "what a search varies is a start"),
        (
            "yield replace(defect, path=_as_written(task.source.value, (*path, *defect.path)))",
            "yield defect",
            "the place",
        ),
        ('if other in ("*", pattern)', "if other == pattern", "a rule for all tools"),
        ("if not r.when)", ")", "a rule with conditions leaves some to the next"),
    ),
    *changes_of(
        "plugins/workbench_state_machine/defects.py",
        PLANTED,
        ("if _never(step, state, signature.outputs) is None:", "if True:", "ways that are never taken"),
        ("if config.max_turns < needed:", "if config.max_turns < turns[END]:", "answers kept on the way"),
    ),
    *changes_of(
        "plugins/workbench_tools/defects.py",
        PLANTED,
        ('lazy = config.register_ == "lazy" and not config.nearest', "lazy = False", "registering takes a step"),
        ("if not tools and config.user is None:", "if False:", "an agent without tools"),
    ),
    *changes_of(
        "core/workbench/cli/check_commands.py",
        PLANTED,
        ("        sys.exit(2)\n", "        pass\n", "the exit code"),
        ("lint_task(task, unread=not deep)", "lint_task(task)", "unread fields are told twice"),
    ),
]
