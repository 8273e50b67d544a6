"""What is installed: bounds, locks with hashes, jobs, and no host of a package registry anywhere."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbench.base.distribution import BUNDLED
from workbench_doctor import checks as doctor

ROOT = Path(__file__).parents[2]
#: By name, what the pyproject.toml of each distribution says.
PROJECTS = {
    name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for name, folder in BUNDLED.items()
}
#: What the tests are installed with.
TESTED = [
    line.partition("#")[0].strip()
    for line in (ROOT / "requirements-test.txt").read_text().splitlines()
    if line and line[0] != "#"
]
LOCKS = (
    *(f"contrib/supply_chain/{name}.lock" for name in ("requirements", "tools", "trackers")),
    "contrib/fuzz/requirements.lock",
    "contrib/mutants/requirements.lock",
)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: In parts, lest this file names them.
HOSTS = [
    *("registry.npm" + "js", "npm" + "js.com", "py" + "pi.org", "python" + "hosted", "js" + "delivr", "un" + "pkg.com"),
    *("crates" + ".io", "download.py" + "torch", "proxy.go" + "lang", "repo.ana" + "conda", "ruby" + "gems.org"),
]


def locked(file: str) -> list[tuple[Requirement, list[str]]]:
    """(requirement, hashes) of a lock file."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        words, *hashes = re.split(r"\s+--hash=", line.strip())
        found.append((Requirement(words), hashes))
    return found


@pytest.mark.parametrize("file", LOCKS)
def test_every_line_of_a_lock_is_one_version_with_hashes(file: str) -> None:
    lines = locked(file)
    for requirement, hashes in lines:
        assert [one.operator for one in requirement.specifier] == ["=="] and requirement.url is None
        assert hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    assert not re.search(r"https?:|--(?:extra-)?index|--find-links", (ROOT / file).read_text())


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_lock_has_what_the_tests_are_installed_with(version: str) -> None:
    environment = {"python_version": version, "python_full_version": f"{version}.7", "sys_platform": "linux"}
    pins: dict[str, Version] = {}
    for requirement, _ in locked(LOCKS[0]):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            name = canonicalize_name(requirement.name)
            assert name not in pins, f"two versions of {name}"
            pins[name] = Version(next(iter(requirement.specifier)).version)
    folders = {f"./{folder}": name for name, folder in BUNDLED.items()}
    left, seen = [], set[str]()
    for line in TESTED:
        path, bracket, extras = line.removeprefix("-e ").partition("[")
        left.append(f"{folders.pop(path, path)}{bracket}{extras}")
    assert not folders, "each distribution is tested"
    while left:
        wanted = Requirement(left.pop())
        if (project := PROJECTS.get(wanted.name)) is not None:
            left += project["dependencies"] if wanted.name not in seen else []
            left += [more for one in wanted.extras for more in project["optional-dependencies"][one]]
            seen.add(wanted.name)
        elif wanted.name != "torch":  # which build is right depends on the machine
            pin = pins[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(pin), f"{wanted} is asked for, {pin} is locked"


@pytest.mark.parametrize("name", ["litellm", "dspy", "httpx"])
def test_what_reads_answers_has_an_upper_bound(name: str) -> None:
    lines = [line for project in PROJECTS.values() for line in project["dependencies"]]
    wanted = next(Requirement(line) for line in lines if Requirement(line).name == name)
    assert any(one.operator == "<" for one in wanted.specifier)
    assert wanted.specifier.contains(importlib.metadata.version(name)), "and it is the version that is tested"
    for bad in doctor._COMPROMISED.get(name, ()):
        assert not wanted.specifier.contains(bad) and any(one.version == bad for one in wanted.specifier)


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("litellm", "1.82.8", "1.82.8 stole credentials: uninstall it and change your keys"),
        ("litellm", "1.50.0", r"1\.50\.0 is installed, but litellm.* is needed; reinstall"),
        ("dspy", "9.0", r"9\.0 is installed, but dspy.* is needed; reinstall"),
        ("scipy", None, "not installed; reinstall"),
    ],
)
def test_doctor_names_bad_packages(
    name: str, version: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version

    def found(asked: str) -> str:
        if asked == name and version is None:
            raise importlib.metadata.PackageNotFoundError(asked)
        return version or "" if asked == name else real(asked)

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: PROJECTS[name]["dependencies"])
    assert {check.status for check in doctor._packages()} == {"ok"}
    monkeypatch.setattr(importlib.metadata, "version", found)
    (check,) = [check for check in doctor._packages() if check.status != "ok"]
    assert check.name == name and check.status == "fail" and re.match(message, check.message)


def test_doctor_lets_litellm_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def found(asked: str) -> str:
        if asked == "litellm":
            raise importlib.metadata.PackageNotFoundError(asked)
        return real(asked)

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: PROJECTS[name]["dependencies"])
    monkeypatch.setattr(importlib.metadata, "version", found)
    checks = [*doctor._packages()]
    assert {check.status for check in checks} == {"ok"}
    said = next(check.message for check in checks if check.name == "litellm")
    assert said.startswith("not installed; only needed for models")


@pytest.mark.slow
def test_no_host_of_a_registry_is_named() -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    if len(names) < 100:
        pytest.skip("this is no checkout")
    wanted = re.compile("|".join(map(re.escape, HOSTS)).encode(), re.IGNORECASE)
    assert wanted.search(HOSTS[0].encode())
    for name in filter(None, names):
        file = ROOT / name
        if file.is_file():
            assert not (found := wanted.search(file.read_bytes())), f"{name}: {found}"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_jobs_run_pinned_actions_with_the_least_rights(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text())
    steps = [step for job in jobs["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
        for line in step.get("run", "").splitlines():
            if (
                "pip install" in line and line.strip() != "pip install torch==2.13.0"
            ):  # its build depends on the machine
                assert "--no-deps" in line and ("--require-hashes" in line or "-r requirements" in line)
    for name, job in jobs["jobs"].items():
        rights = job.get("permissions", jobs["permissions"])
        assert rights == ({"id-token": "write"} if name == "publish" else {"contents": "read"})
        assert job["timeout-minutes"] <= 60
        assert "secrets." not in file.read_text()


def test_there_are_scheduled_jobs_and_a_release() -> None:
    found = {file.stem: yaml.safe_load(file.read_text()) for file in WORKFLOWS}
    assert sorted(found) == "agents audit fuzz mutants newest quickstarts release trackers worlds".split()
    for name in ("agents", "audit", "fuzz", "mutants", "newest", "quickstarts", "worlds"):
        assert found[name][True]["schedule"], "YAML reads `on` as true"
    text = {file.stem: file.read_text() for file in WORKFLOWS}
    assert "pip-audit --strict" in text["audit"] and "licences.py" in text["audit"]
    assert "cyclonedx-py" in text["release"] and "attestations: true" in text["release"]


def test_every_extra_stands_on_the_page_that_tells_how_to_install() -> None:
    page = (ROOT / "docs/how-to/install.md").read_text()
    for name, project in PROJECTS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `./{BUNDLED[name]}`")]
        assert [extra for extra in project.get("optional-dependencies", {}) if f"`{extra}`" not in row] == []


def test_the_size_of_an_install_follows_requirements_and_leaves_out_what_only_these_bring() -> None:
    module = script("bench/install_size.py")
    whole, less = (module.closure(Requirement("dspy"), without) for without in ((), {"litellm", "openai"}))
    assert {"litellm", "openai", "pydantic"} <= whole.keys() and "pydantic" in less
    assert not {"litellm", "openai", "botocore"} & less.keys()
    assert module.size(less["pydantic"]) > 1 << 20 and "pip" not in module.closure(Requirement("sqlite-utils"), ())
    lines = module.table(module.BASE, {"scipy"}, 5.0).splitlines()
    assert lines[0].startswith("| distribution") and not [line for line in lines if line.startswith("| scipy")]


def script(path: str) -> Any:
    """A script of contrib as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "contrib" / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_newest_dspy_and_transformers_are_tested_and_none_is_red() -> None:
    """What the job runs is there; the runs themselves need an index of packages."""
    module = script("newest.py")
    (job,) = yaml.safe_load((ROOT / ".github/workflows/newest.yml").read_text())["jobs"].values()
    assert job["strategy"]["matrix"]["case"] == [*module.CASES] == ["dspy", "transformers", "transformers-5.20"]
    assert job["continue-on-error"] and any(step.get("continue-on-error") for step in job["steps"])
    for case in module.CASES:
        installs, tests, *_ = module.commands(case)
        assert installs[2] == "pip" and tests[2] == "pytest"
        for command in module.commands(case):
            assert all((ROOT / part).exists() for part in command if part.startswith("tests/"))
    done = subprocess.run(
        [sys.executable, ROOT / "contrib/newest.py", "dspy", "--dry-run"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("$ ") == 4 and "uninstall --yes litellm" in done.stdout


def test_the_bounds_of_litellm_are_the_same_where_dspy_brings_it_and_as_an_extra() -> None:
    project = PROJECTS["workbench-dspy"]
    (base,) = [line for line in project["dependencies"] if Requirement(line).name == "litellm"]
    assert project["optional-dependencies"]["litellm"] == [base]


def test_licences_are_read_from_the_clearest_field() -> None:
    module = script("supply_chain/licences.py")

    def package(name: str, *fields: tuple[str, str]) -> Any:
        metadata = Message()
        for field, value in fields:
            metadata[field] = value
        return SimpleNamespace(name=name, version="1", metadata=metadata)

    good = [
        package("a", ("License-Expression", "MPL-2.0 AND (Apache-2.0 OR MIT)"), ("License", "GPL")),
        package("b", ("Classifier", "License :: OSI Approved :: MIT License"), ("License", "whole text")),
        package("c", ("License", "MIT License")),
        package("jinja2-ansible-filters", ("License", "GPL3")),
    ]
    bad = [
        package("d", ("License-Expression", "MIT AND AGPL-3.0-only")),
        package("e", ("Classifier", "License :: OSI Approved :: GNU General Public License v3 (GPLv3)")),
        package("f", ("Classifier", "Programming Language :: Python")),
    ]
    assert module.refused(good) == []
    assert module.refused(good + bad) == [
        "d 1: AGPL-3.0-only",
        "e 1: GNU General Public License v3 (GPLv3)",
        "f 1: no licence is named",
    ]


def test_the_action_for_pull_requests_puts_no_text_of_others_into_its_commands() -> None:
    """What stands in `${{ }}` inside a script is run by the shell: it must come through the environment."""
    action = yaml.safe_load((ROOT / "contrib" / "github-action" / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert len(steps) >= 3 and action["runs"]["using"] == "composite"
    for step in steps:
        assert "${{" not in step.get("run", ""), step
        assert "uses" not in step or re.search(r"@[0-9a-f]{40}$", step["uses"]), "pinned by commit"
    named = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "contrib" / "github-action" / "action.yml").read_text()))
    assert named == set(action["inputs"])
