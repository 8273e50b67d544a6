"""What reaches the terminal, and who is named when a plugin, a file or a `.pth` file does harm."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

OUTPUT = "core/workbench/cli/output.py"
TERMINAL = "tests/cli/test_terminal.py"
GUARD = "core/workbench/plugins/guard.py"
HOSTILE = "tests/cli/test_hostile_plugins.py"
SHOWN: list[Mutant] = [
    *changes_of(
        OUTPUT,
        TERMINAL,
        ("else visible(part.text)\n", "else part.text\n", "plain text goes out as it is"),
        ('Text("".join(visible(part.text)', 'Text("".join((part.text)', "text above a live line"),
        ("click.style(visible(part.text)", "click.style((part.text)", "coloured text"),
        ("part if n % 2 else visible(part)", "part", "what others print"),
        ("click.confirm(visible(question)", "click.confirm((question)", "questions"),
        ("default=str, indent=indent, allow_nan=False", "default=str, indent=indent", "NaN in JSON"),
    ),
    *changes_of(
        "core/workbench/cli/progress.py",
        TERMINAL,
        (
            "note = one_line(evaluation.workflow.patch.note)",
            "note = (evaluation.workflow.patch.note)",
            "a note can forge a line",
        ),
        ("self._escaping.__enter__()", "pass", "prints beside a live line"),
    ),
    *changes_of(
        "core/workbench/task/write.py",
        TERMINAL,
        ("    if visible(text) != text:\n", "    if False:\n", "hidden characters are quoted"),
        ("return visible(text)  #", "return text  #", "result files hide characters"),
        ("{one_line(line)}", "{line}", "the head of a result file can end its comment"),
    ),
    *changes_of("core/workbench/base/text.py", TERMINAL, ("or code in _BLANK", "", "blank letters")),
    *changes_of(
        "core/workbench/kit/acting/mcp_session.py",
        TERMINAL,
        ("said = visible(", "said = (", "what a server said"),
        ("errlog=said", "errlog=sys.stderr", "a server writes to the terminal"),
    ),
    *changes_of(
        GUARD,
        HOSTILE,
        ("                if pressed:", "                if True:", "a plugin can press Ctrl-C"),
        ("            alert(line)", "            pass", "one that ends the process is named"),
    ),
    *changes_of(
        "core/workbench/plugins/manager.py",
        HOSTILE,
        ("if not said.read().endswith(_LOADED)", "if False", "imports that end Python are found"),
    ),
    *changes_of(
        "core/workbench/run/session.py",
        HOSTILE,
        ("            *plugins().warnings(),\n", "", "what was set aside is reported"),
    ),
    *changes_of(
        "core/workbench/errors/tree.py",
        "tests/cli/test_hostile_yaml.py",
        ("            if len(wrong) == MOST_LISTED:", "            if False:", "all jobs are done"),
        ("merged.omitted += sum(1 for _ in left)", "pass", "jobs that were not done are counted"),
        ("tuple(found[1:MOST_LISTED])", "tuple(found[1:])", "all errors are listed"),
    ),
    *changes_of(
        "core/workbench/spec/patterns.py",
        "tests/spec/test_patterns.py",
        (
            "except (RecursionError, OverflowError, ValueError)",
            "except ZeroDivisionError",
            "patterns nested too deeply",
        ),
    ),
    *changes_of(
        "core/workbench/run/doctor.py",
        "tests/run/test_doctor.py",
        ("and _SETUPTOOLS_PTH.fullmatch(text)", "", "a name is enough"),
        ('encoding="utf-8-sig"', 'encoding="utf-8"', "a mark of the encoding hides a line"),
    ),
]
