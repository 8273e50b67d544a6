"""The command of a row in a container image: by a stand-in of docker, and by a real runtime where one works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.docker_stand_in import install
from tests.helpers.external_agents import CLIENT, SORTER, write_agent
from tests.helpers.processes import process_fields
from tests.plugins.external.test_rows import RecordingLM

import workbench
from workbench.cli.trust.needs import collect_needs
from workbench.errors import SpecError
from workbench.inference import PredictionError
from workbench.run import Options, optimize, resume
from workbench.study import make_optimizer
from workbench_external.container import Containers, _begin_of, _machine
from workbench_testing.simulated import SimulatedLM, SimulatedPool

IMAGE = "agents/sorter:1"


def answer(place: Path, lm: SimulatedLM | None = None, **settings: Any) -> str:
    """The answer of one row."""
    node = {"external": "text -> label", "image": IMAGE, "timeout": 30, **settings}
    file = place / "workflow.yaml"
    file.write_text(yaml.safe_dump({"name": "t", "lm": "openai/m", "nodes": {"agent": node}}))
    with workbench.load(file, pool=SimulatedPool(lm or RecordingLM())) as wf:
        return wf(text="a b")["label"]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a stand-in of docker, which is the only program on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return install(tmp_path / "bin", "docker")


def calls(state: Path, command: str) -> list[dict[str, Any]]:
    found = map(json.loads, (state / "calls").read_text().splitlines())
    return [call for call in found if call["words"][0] == command]


def is_gone(process: int) -> bool:
    """Whether a process ends soon."""
    for _ in range(50):
        fields = process_fields(process)
        if fields is None or fields[0] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"command": ["cat"], "output": "json:text"}, "a b"),
        ({"command": ["echo", "<{text}>"], "stdin": "none"}, "<a b>"),
        ({"command": ["sh", "-c", 'printf %s "$NOTE"'], "env": {"NOTE": "n:\n{text}"}}, "n:\na b"),
        ({"command": ["sh", "-c", "ls -a | wc -l"]}, "2"),
        ({"command": ["sh", "-c", "cat > out.txt"], "output": "file:out.txt", "stdin": "text"}, "a b"),
        ({"command": ["sh", "home/agent.sh", "aside.txt"], "folder": "home"}, "aside.txt copy"),
    ],
)
def test_inputs_and_answers_pass_into_a_container_in_all_ways(
    settings: Any, printed: str, docker: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/agent.sh").write_text("echo $1 $(cat more.txt)")
    (tmp_path / "home/more.txt").write_text("copy")
    (tmp_path / "aside.txt").write_text("beside the workflow file, so that the image has none")
    assert answer(tmp_path, **settings) == printed
    assert "folder" not in settings or "/work/agent.sh" in calls(docker, "run")[0]["words"]
    assert not list((docker / "containers").iterdir())


def test_a_container_is_started_with_what_the_row_needs_and_nothing_else(docker: Path, tmp_path: Path) -> None:
    answer(tmp_path, command=["echo", "{text}", "b"])
    (call,) = calls(docker, "run")
    words = " ".join(call["words"])
    for part in ("--rm --init", "--pull never", "--network host", "--log-driver none", "--workdir /work"):
        assert f" {part} " in words
    assert f" --user {os.getuid()}:{os.getgid()} " in words and ":/work:z " in words
    assert words.endswith(f" --entrypoint echo {IMAGE} a b b")
    assert not {"--privileged", "--publish", "--device", "--cap-add"} & {*call["words"]}
    name = call["words"][call["words"].index("--name") + 1]
    assert [call["words"] for call in calls(docker, "rm")] == [["rm", "--force", name]]


def test_values_of_variables_stand_on_no_command_line_and_ours_reach_no_container(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "MY_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "sk-secret-of-ours")
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = answer(tmp_path, command=["env"], env={"NOTE": "n{text}"}).splitlines()
    found = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert found["PATH"].startswith("/image/bin") and found["HOME"] == "/image/home" and found["NOTE"] == "na b"
    assert found["OPENAI_BASE_URL"].startswith("http://127.0.0.1:") and "sk-secret-of-ours" not in found.values()
    secret = found["OPENAI_API_KEY"]
    (call,) = calls(docker, "run")
    assert not any(secret in word or "na b" in word for word in call["words"])
    assert call["environment"]["OPENAI_API_KEY"] == secret and call["environment"]["HOME"] == str(tmp_path)


def test_variables_that_the_client_would_obey_reach_the_container_alone(docker: Path, tmp_path: Path) -> None:
    env = {"HOME": "/work", "PATH": "/row/bin:/usr/bin:/bin", "DOCKER_HOST": "tcp://elsewhere.example"}
    found = answer(tmp_path, command=["env"], env=env).splitlines()
    assert {f"{name}={value}" for name, value in env.items()} <= {*found}
    (call,) = calls(docker, "run")
    assert not {name: value for name, value in env.items() if call["environment"].get(name) == value}
    assert not Path(call["words"][call["words"].index("--env-file") + 1]).exists()
    with pytest.raises(PredictionError, match="no line break in the variable HOME"):
        answer(tmp_path, command=["env"], env={"HOME": "a\nMORE=b"})


@pytest.mark.parametrize(("timeout", "calls", "failure"), [(1.5, 1, "deadline"), (30.0, 1, "steps")])
def test_the_container_of_a_row_that_is_ended_goes_whole(
    timeout: float, calls: int, failure: str, docker: Path, tmp_path: Path
) -> None:
    asks = "for n in '12': chat([{'role': 'user', 'content': n}])\n" if failure == "steps" else ""
    (tmp_path / "agent.py").write_text(
        f"{CLIENT}\nimport subprocess, time\nchild = subprocess.Popen(['sleep', '77'])\n"
        f"open({str(tmp_path / 'processes')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"try:\n    {asks or 'pass'}\nexcept OSError: pass\ntime.sleep(77)"
    )
    with pytest.raises(PredictionError) as caught:
        command = [sys.executable, "agent.py"]
        answer(tmp_path, command=command, folder=".", timeout=timeout, calls=calls)
    assert caught.value.prediction.failure == failure, str(caught.value)
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 2 and all(is_gone(int(process)) for process in processes)
    assert not list((docker / "containers").iterdir())


def test_containers_of_killed_runs_are_removed_and_those_of_other_runs_stay(docker: Path, tmp_path: Path) -> None:
    here, ended = f"workbench.machine={_machine()}", subprocess.Popen(["/bin/true"])
    ended.wait()
    kept = {
        f"workbench-{os.getpid()}-{_begin_of(os.getpid())}-aa": here,
        f"workbench-{ended.pid}-77-bb": "workbench.machine=of-another",
        "someone-elses": here,
    }
    abandoned = {f"workbench-{ended.pid}-77-cc": here, f"workbench-{os.getpid()}-77-dd": here}
    running = subprocess.Popen(["/bin/sleep", "77"], start_new_session=True)
    for name, label in {**kept, **abandoned}.items():
        (docker / "containers" / name).write_text(json.dumps({"process": running.pid, "label": label}))
    answer(tmp_path, command=["cat"])
    assert {path.name for path in (docker / "containers").iterdir()} == {*kept}
    assert is_gone(running.pid) and running.wait() < 0


def test_an_image_that_is_not_there_ends_the_run_before_a_row_is_paid(docker: Path, tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, image="agents/other", rows=(4, 4, 4))
    lm = SimulatedLM()
    with pytest.raises(SpecError) as caught:
        optimize(path, **run_settings(tmp_path, lm))
    assert "docker has no image 'agents/other'" in str(caught.value) and "docker pull agents/other" in str(caught.value)
    assert lm.requests == 0 and not calls(docker, "run") and not calls(docker, "pull")


def run_settings(place: Path, lm: SimulatedLM) -> dict[str, Any]:
    return {
        "database": place / "run.db",
        "optimizers": [("checked", make_optimizer({"rewrite": {"rounds": 1, "width": 1}}))],
        "pool": SimulatedPool(lm),
        "options": Options(out=str(place / "out.yaml"), allow_unproved=True, keep_unproved=True),
    }


def test_where_nothing_runs_containers_the_error_says_what_to_install(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docker / "fault").write_text("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    with pytest.raises(SpecError, match="docker does not answer: Cannot connect") as caught:
        answer(tmp_path, command=["cat"])
    assert "Start its daemon, or install podman" in str(caught.value)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="neither docker nor podman is on PATH") as caught:
        answer(tmp_path, command=["cat"])
    assert "apt-get install podman" in str(caught.value)


def test_podman_is_used_where_docker_does_not_answer_or_lacks_the_image(docker: Path, tmp_path: Path) -> None:
    podman = install(tmp_path / "bin", "podman", info="false")
    (docker / "images").write_text("another")
    assert answer(tmp_path, command=["echo", "x"]) == "x" and len(calls(podman, "run")) == 1
    (docker / "fault").write_text("no daemon")
    assert answer(tmp_path, command=["echo", "y"]) == "y" and len(calls(podman, "run")) == 2
    assert "--http-proxy=false" in calls(podman, "run")[0]["words"] and not calls(docker, "run")


@pytest.mark.parametrize(
    ("name", "info", "expected"),
    [
        ("docker", "[name=seccomp,profile=builtin]", "--user 1234:1235 --volume"),
        ("docker", "[name=seccomp,profile=builtin name=rootless]", "--user 0:0 --volume"),
        ("podman", "true", "--userns keep-id --user 1234:1235 "),
    ],
)
def test_files_that_a_container_writes_are_ours_also_where_it_runs_without_root(
    name: str, info: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 1235)
    state = install(tmp_path / "bin", name, info=info)
    answer(tmp_path, command=["cat"])
    assert expected in " ".join(calls(state, "run")[0]["words"])


def test_a_container_that_cannot_be_started_is_told_with_what_the_runtime_says(docker: Path, tmp_path: Path) -> None:
    (docker / "refused").write_text("Error: container-init binary not found")
    with pytest.raises(PredictionError, match="docker says: Error: container-init") as caught:
        answer(tmp_path, command=["cat"])
    assert caught.value.prediction.failure == "start"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"python": "a.py:f"}, "image needs command alone"),
        ({"command": ["x", "{port}"], "url": "http://127.0.0.1:{port}/"}, "image needs command alone"),
        ({"command": ["x"], "image": "--privileged"}, "'--privileged' is not a name of an image"),
    ],
)
def test_an_image_is_of_a_command_and_no_option_of_the_client(settings: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=told):
        answer(tmp_path, **settings)


def test_whoever_is_asked_to_trust_a_file_is_told_of_its_image(tmp_path: Path) -> None:
    node = {"external": "text -> label", "image": IMAGE, "command": ["cat"]}
    file = {"name": "t", "lm": "openai/m", "nodes": {"agent": node}, "search": {"nodes.agent.image": ["agents/evil"]}}
    (tmp_path / "workflow.yaml").write_text(yaml.safe_dump(file))
    (line,) = collect_needs(tmp_path / "workflow.yaml").lines()
    assert f"the container image {IMAGE}" in line and "the container image agents/evil" in line


@pytest.mark.slow
def test_rows_that_had_ended_need_no_container_when_a_run_is_resumed(docker: Path, tmp_path: Path) -> None:
    path = write_agent(
        tmp_path, SORTER, image=IMAGE, command=[sys.executable, str(tmp_path / "agent.py")], rows=(4, 4, 4)
    )
    first = optimize(path, **run_settings(tmp_path, SimulatedLM()))
    assert calls(docker, "run") and first.status == "finished"
    shutil.rmtree(tmp_path / "bin")
    lm = SimulatedLM()
    assert resume("last", **run_settings(tmp_path, lm)).status == "finished" and lm.requests == 0


@pytest.fixture
def image(tmp_path: Path) -> str:
    """An image of this machine's own busybox, in a real runtime."""
    busybox, name = shutil.which("busybox"), f"workbench-test:{os.getpid()}"
    if busybox is None or b"statically" not in subprocess.run(["file", "-L", busybox], capture_output=True).stdout:
        pytest.skip("there is no static busybox to make an image of")
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        tar.add(os.path.realpath(busybox), "bin/busybox")
        for program in ("sh", "cat", "env", "id", "ls", "sleep", "wget", "head"):
            link = tarfile.TarInfo(f"bin/{program}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return name


@pytest.mark.slow
def test_a_real_runtime_runs_rows_reaches_the_gateway_and_leaves_nothing(image: str, tmp_path: Path) -> None:
    try:
        client = asyncio.run(Containers.open())._clients[0]
    except SpecError as error:
        pytest.skip(f"no runtime works here: {error}")

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([client.program, *words], capture_output=True, text=True, timeout=60, check=False)

    made = ask("import", str(tmp_path / "image.tar"), image)
    assert made.returncode == 0, made.stderr
    try:
        if (tried := ask("run", "--rm", "--init", "--network", "host", image, "/bin/sh", "-c", "true")).returncode:
            pytest.skip(f"{client.name} starts no container here: {tried.stderr}")
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]})
        headers = "--header 'Content-Type: application/json' --header \"Authorization: Bearer $OPENAI_API_KEY\""
        script = (
            f"cat > in.txt; id -u > uid.txt; wget -q -O answer.json {headers} --post-data '{body}' "
            '$OPENAI_BASE_URL/chat/completions; echo "$PWD $(cat uid.txt) $(cat in.txt) $HOME $NOTE"; cat answer.json'
        )
        lm = RecordingLM()
        command = ["sh", "-c", script]
        found = answer(tmp_path, lm, command=command, image=image, stdin="text", env={"NOTE": "n", "HOME": "/work"})
        assert found.startswith(f"/work {os.getuid()} a b /work n\n") and '"yes"' in found and len(lm.asked) == 1
        with pytest.raises(PredictionError) as caught:
            answer(tmp_path, command=["sh", "-c", "trap '' TERM; sleep 77 & sleep 77"], image=image, timeout=3.0)
        assert caught.value.prediction.failure == "deadline"
        left = ask("ps", "--all", "--filter", f"label=workbench.machine={_machine()}", "--format", "{{.Names}}")
        assert left.returncode == 0 and not left.stdout.strip()
    finally:
        ask("rmi", "--force", image)
