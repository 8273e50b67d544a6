"""Plugins that exit, raise late or take names: they are named and set aside, and the command goes on or says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from workbench import hookimpl
from workbench.cli.output import escaping
from workbench.plugins import Plugins

ROWS = "".join(f'{{"text": "row {n}", "label": "a"}}\n' for n in range(30))
FILE = (
    "name: w\nlm: bundled/nano\nmetric: exact_match(label)\nbudget: {calls: 60}\n"
    "data: {file: rows.jsonl, split: {train: 10, val: 10, test: 10}}\n"
    "nodes:\n  sort: {predict: 'text -> label'}\noptimize: [{random: {trials: 1}}]\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "w.yaml").write_text(FILE)
    return tmp_path


def install(folder: Path, code: str, name: str = "aaa", distribution: str = "hostile") -> None:
    (folder / f"{distribution}.py").write_text(f"from workbench import hookimpl\n{code}\n")
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[workbench]\n{name} = {distribution}\n")


def workbench(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))  # that of mutants is kept
    env = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder, timeout=120)


def test_a_plugin_that_exits_when_it_is_first_used_says_so(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_optimizers(register):\n    register('late', 'late_module:Late')")
    (folder / "late_module.py").write_text("raise SystemExit(0)\n")
    (folder / "w.yaml").write_text(FILE.replace("random:", "late:"))
    done = workbench(["validate", "w.yaml"], folder)
    assert done.returncode == 2 and "optimizer 'late' of plugin 'aaa' cannot be loaded: SystemExit" in done.stderr


def test_a_plugin_that_exits_while_it_adds_commands_is_named(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_commands(cli):\n    raise SystemExit(0)")
    done = workbench(["plugin", "bench", "--help"], folder)
    assert done.returncode == 0 and "Usage" in done.stdout, "the commands of other plugins are there"
    assert "plugin 'aaa' was set aside" in done.stderr


@pytest.mark.slow
def test_a_bundled_plugin_keeps_its_names(folder: Path) -> None:
    install(folder, "@hookimpl\ndef register_optimizers(register):\n    register('random', 'x:y')")
    assert workbench(["validate", "w.yaml"], folder).returncode == 0
    line = next(x for x in workbench(["plugin", "list"], folder).stdout.splitlines() if x.startswith("aaa "))
    assert "set aside" in line and "has registered already" in line


@pytest.mark.fault("hostile-plugins")
@pytest.mark.slow
def test_no_plugins_loads_the_bundled_ones_alone(folder: Path) -> None:
    """Not even one that ends the process of each command."""
    install(folder, "import os\nprint('LOADED', flush=True)\nos._exit(3)")
    assert "LOADED" in workbench(["validate", "w.yaml"], folder).stderr
    done = workbench(["--no-plugins", "validate", "w.yaml"], folder)
    assert "LOADED" not in done.stdout + done.stderr and "is valid" in done.stdout and done.returncode == 0


# What a plugin does when it is imported

IMPORTS = {
    "raises": ("1 / 0", "ZeroDivisionError"),
    "exits": ("raise SystemExit(0)", "SystemExit"),
    "kbd": ("raise KeyboardInterrupt", "it raised KeyboardInterrupt"),
    "base": ("raise BaseException('x')", "BaseException: x"),
    "osexit": ("import os; os._exit(0)", "its import ends Python (exit code 1)"),
    "kills": ("import os; os.kill(os.getpid(), 9)", "its import ends Python (SIGKILL)"),
    "hang": ("import time; time.sleep(600)", "its import is not done after 3 s"),
}
PATIENCE_3 = "import workbench.plugins.guard as g; g.PATIENCE = 3; from workbench.cli import main; main()"


def test_plugins_lists_those_whose_import_raises_ends_python_or_hangs(folder: Path) -> None:
    for name, (code, _) in IMPORTS.items():
        install(folder, code, name=f"aaa_{name}", distribution=f"hostile_{name}")
    command = [sys.executable, "-c", PATIENCE_3, "plugin", "list"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder, timeout=120)
    for name, (_, reason) in IMPORTS.items():
        line = next(x for x in done.stdout.splitlines() if x.startswith(f"aaa_{name} "))
        assert line.startswith(f"aaa_{name} (hostile_{name} 1.0): set aside: ") and reason in line, line
    assert "random (" in done.stdout and done.returncode == 0, "the others are listed"


def test_a_plugin_that_prints_is_listed_with_what_it_provides(folder: Path) -> None:
    install(
        folder,
        "print('\\x1b]52;c;aGk=\\x07')\n@hookimpl\ndef register_optimizers(register):\n    register('own', 'x:y')",
    )
    done = workbench(["plugin", "list"], folder)
    assert "aaa (hostile 1.0)\n  optimizer: own\n" in done.stdout and done.returncode == 0
    assert "\\x1b]52;c;aGk=\\x07" in done.stderr and "\x1b" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_command_goes_on_without_plugins_whose_import_raises_anything(folder: Path) -> None:
    raised = {"kbd": "raise KeyboardInterrupt", "base": "raise BaseException('x')"}
    for name, code in raised.items():
        install(folder, code, name=name, distribution=f"hostile_{name}")
    done = workbench(["optimize", "w.yaml"], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in raised:
        assert f"plugin '{name}' was set aside: " in done.stdout, done.stdout + done.stderr


@pytest.mark.fault("hostile-plugins")
@pytest.mark.parametrize(
    ("when", "status", "code"), [("", 3, 3), ("@hookimpl\ndef register_optimizers(register):\n    ", 0, 1)]
)
def test_a_plugin_that_ends_the_process_of_a_command_is_named_last(
    folder: Path, when: str, status: int, code: int
) -> None:
    install(folder, f"import os\n{when}os._exit({status})")
    done = workbench(["validate", "w.yaml"], folder)
    said = "plugin 'aaa' (hostile 1.0) ended the process while being imported: leave it out with --no-plugins"
    assert done.returncode == code and said in done.stderr


def test_ctrl_c_while_a_plugin_is_imported_names_it(folder: Path) -> None:
    install(folder, "import time\nprint('here', flush=True)\ntime.sleep(600)")
    command = [sys.executable, "-m", "workbench", "validate", "w.yaml"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        command,
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored if the tests run in the background
    )
    with process:
        assert process.stderr is not None and process.stderr.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said
    assert "Interrupted: plugin 'aaa' (hostile 1.0) was being imported; leave it out with --no-plugins" in said


# Row 17: what hooks do, by themselves. After each, the hooks of another plugin are called as before.

HOOKS = ("register_optimizers", "register_commands")
RAISED = {
    "raises": (ValueError("broken"), "ValueError: broken"),
    "exits": (SystemExit(0), "SystemExit: 0"),
    "kbd": (KeyboardInterrupt(), "it raised KeyboardInterrupt"),
}


class Plugin:
    """A plugin with one hook, which counts its calls and does one thing."""

    def __init__(self, hook: str, act: Callable[[], None]):
        self.calls = 0

        def called(*given: object) -> None:
            self.calls += 1
            act()

        setattr(self, hook, hookimpl(called))


def call(hook: str, hostile: Plugin) -> tuple[Plugins, Plugin]:
    """Both plugins loaded, and the hook called twice; those of registration are called once, by loading."""
    healthy = Plugin(hook, lambda: None)
    found = Plugins(extra=[("hostile", hostile), ("healthy", healthy)])
    if hook != "register_optimizers":
        for _ in range(2):
            found.call(hook, cli=None)
    return found, healthy


@pytest.mark.fault("hostile-plugins")
@pytest.mark.parametrize("how", RAISED)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_is_named_and_called_no_more(hook: str, how: str) -> None:
    error, reason = RAISED[how]

    def act() -> None:
        raise error

    hostile = Plugin(hook, act)
    try:
        found, healthy = call(hook, hostile)
    except KeyboardInterrupt:  # which would end the tests
        pytest.fail("taken for Ctrl-C")
    times = 1 if hook == "register_optimizers" else 2
    assert hostile.calls == 1 and healthy.calls == times
    assert reason in found.set_aside["hostile"] and list(found.set_aside) == ["hostile"]


@pytest.mark.fault("hostile-plugins")
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_does_not_return_is_named(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("workbench.plugins.guard.PATIENCE", 0.01)
    monkeypatch.setattr("workbench.plugins.guard.alert", said.append)

    def act() -> None:
        begun = time.monotonic()
        while not said and time.monotonic() - begun < 30:  # until it is named
            time.sleep(0.001)

    found, healthy = call(hook, Plugin(hook, act))
    doing = "being imported" if hook == "register_optimizers" else f"busy in its hook {hook}"
    assert said[0].startswith(f"plugin 'hostile' (in process) has been {doing} for 0.01 s. To end it, press Ctrl-C")
    assert not found.set_aside and healthy.calls


@pytest.mark.parametrize("hook", HOOKS)
def test_what_a_hook_prints_cannot_control_the_terminal(hook: str, capsys: pytest.CaptureFixture[str]) -> None:
    with escaping():
        found, healthy = call(hook, Plugin(hook, lambda: print("\x1b]0;owned\x07\x9b2J \u202e")))
    assert "\\x1b]0;owned\\x07\\x9b2J \\u202e" in capsys.readouterr().out
    assert not found.set_aside and healthy.calls
