"""Processes of Python that begin with their imports done.

Importing torch and what a training needs takes 4 s of CPU, and what a run needs takes 1.5 s; tests start hundreds of
such processes. One process for each worker of the tests imports them once, and the others are forked from
it. It computes nothing itself, so that a fork has no thread to lose.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CONTEXT = multiprocessing.get_context("forkserver")
_LIGHT = [
    *("networkx", "pytest", "workbench.cli", "workbench_kit.acting", "workbench.run", "workbench_workers.join"),
    *("aiohttp", "optuna", "scipy.stats", "sqlite_utils", "workbench.cli.run_commands", "workbench.evaluation"),
    *("workbench_metrics.text", "workbench_nano.provider", "workbench_openai.server", "workbench_optuna.optimizer"),
    *("workbench_predict.node", "workbench_readers.json_files", "workbench_tools.agent"),
    *(plugin.value for plugin in entry_points(group="workbench")),
]
_OF_TRAINING = [
    *("peft", "workbench_training.learner", "workbench_training.grpo", "workbench_training.scale.distributed"),
    *("workbench_training.serving.policy_lm", "workbench_hf.provider"),
]


class Job:
    """A process with the part of `subprocess.Popen` that tests use."""

    def __init__(self, code: str, words: Sequence[str], env: Mapping[str, str], cwd: Path):
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, True)
        self._said = [Path(folder, name) for name in ("stdout", "stderr")]
        for file in self._said:  # here: it may be killed before it writes
            file.touch()
        # Without effect once one is forked. The fast tier never imports torch.
        _CONTEXT.set_forkserver_preload([*_LIGHT, *(_OF_TRAINING if "torch" in sys.modules else ())])
        self._process = _CONTEXT.Process(target=_execute, args=(code, words, env, cwd, self._said))
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it wrote to stdout and to stderr."""
        self.wait(timeout)
        out, err = (file.read_text(encoding="utf-8") for file in self._said)
        return out, err


def start_python(code: str, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Job:
    """As `python -W ignore -c code words`. env: beside the environment of this process."""
    return Job(code, words, {**os.environ, **(env or {})}, cwd or Path.cwd())


def start_module(name: str, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Job:
    """As `python -W ignore -m name words`."""
    return start_python(f"import runpy; runpy.run_module({name!r}, None, '__main__', True)", *words, env=env, cwd=cwd)


def start_file(path: str, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Job:
    """As `python -W ignore path words`. path: from the root of the repository."""
    code = f"import runpy; runpy.run_path({str(ROOT / path)!r}, None, '__main__')"
    return start_python(code, *words, env=env, cwd=cwd)


def run_module(name: str, *words: str, cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `python -W ignore -m name words`, with its output as text."""
    job = start_module(name, *words, cwd=cwd)
    out, err = job.communicate(timeout)
    return subprocess.CompletedProcess([name, *words], job.wait(), out, err)


def _execute(code: str, words: Sequence[str], env: Mapping[str, str], cwd: Path, said: Sequence[Path]) -> None:
    for number, path in enumerate(said, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[:] = ["-c", *words]
    warnings.simplefilter("ignore")
    try:
        exec(compile(code, "<forked>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # multiprocessing's processes end without them
