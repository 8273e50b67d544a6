"""`workbench doctor`: the level of a sandbox is the one that was measured; code that starts with Python is named."""

from __future__ import annotations

import json
import os
import re
import site
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.cli import cli
from workbench_doctor.checks import _executable_pth, _site_folders
from workbench_sandbox.linux import LinuxSandbox


def doctors_line() -> tuple[str, str]:
    """The status and the text of the line on sandboxes in `workbench doctor --json`."""
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    found = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "sandbox"]
    assert len(found) == 1
    return found[0]["status"], found[0]["message"]


@needs_kernel
def test_doctor_names_the_level_that_was_measured_and_warns_where_attacks_got_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKBENCH_SANDBOX", "linux")
    status, message = doctors_line()
    assert status == "ok" and re.fullmatch("linux, level (strong|kernel), measured by its self-test", message), message

    async def breached(sandbox: LinuxSandbox) -> list[str]:
        return ["UDP"]

    monkeypatch.setattr("workbench_sandbox.linux.self_test", breached)
    monkeypatch.setattr("workbench_sandbox.linux._PASSED", set())
    status, message = doctors_line()
    assert status == "warn" and "not run here" in message and "only limits-only" in message


SETUPTOOLS = (
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    "enabled and __import__('_distutils_hack');"
)
#: `.pth` files by folder and name; whether `doctor` names them.
PTH = {
    ("pure", "evil.pth"): ("/somewhere\nimport os; os.system('x')\n", True),
    ("pure", "tab.pth"): ("import\tos\n", True),
    ("pure", "bom.pth"): ("\ufeffimport os\n", True),
    ("pure", ".hidden.pth"): ("import os\n", True),
    ("plat", "distutils-precedence.pth"): (f"{SETUPTOOLS} __import__('evil')\n", True),
    ("user", "distutils-precedence.pth"): (f"{SETUPTOOLS}\nimport evil\n", True),
    ("user", "not-utf8.pth"): (b"\xff\xfe\nimport evil\n", True),
    ("pure", "other-name.pth"): (SETUPTOOLS, True),
    ("pure", "distutils-precedence.pth"): (SETUPTOOLS + "\n", False),
    ("plat", "paths.pth"): ("/somewhere\n# import os\nimportant\n", False),
}


def test_pth_files_are_judged_by_their_content(tmp_path: Path) -> None:
    for (folder, name), (text, _) in PTH.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    os.mkfifo(tmp_path / "pure" / "pipe.pth")  # never read: it would not end
    (tmp_path / "pure" / "gone.pth").symlink_to(tmp_path / "nowhere")
    folders = [tmp_path / folder for folder in ("pure", "plat", "user", "absent")]
    found = {(Path(p).parent.name, Path(p).name) for p in _executable_pth(folders)}
    assert found == {place for place, (_, named) in PTH.items() if named}


def test_all_folders_of_pth_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"purelib": tmp_path / "pure", "platlib": tmp_path / "plat"}
    monkeypatch.setattr("workbench_doctor.checks.sysconfig", SimpleNamespace(get_path=lambda name: str(here[name])))
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "user"))
    for enabled in (True, False):
        monkeypatch.setattr(site, "ENABLE_USER_SITE", enabled)
        folders = {"pure", "plat", "user"} if enabled else {"pure", "plat"}
        assert {p.name for p in _site_folders() if p.parent == tmp_path} == folders
    (tmp_path / "plat").mkdir()
    (tmp_path / "plat" / "evil.pth").write_text("import evil\n")
    checks = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)["checks"]
    said = [c["message"] for c in checks if c["name"] == "executable .pth"]
    assert f"{tmp_path / 'plat' / 'evil.pth'} runs code at every start of Python" in said
