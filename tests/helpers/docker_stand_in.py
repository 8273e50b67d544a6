"""A stand-in for docker and podman, not a runtime of containers: what it runs, runs on this machine.

What it keeps of them: the client is one process, and the container another that outlives it, in a session of its own,
which has the variables that were passed and none else. Unknown options are refused. In the folder NAME.state beside
the program are: `calls`, a line of JSON for each; `containers`, a file for each; `images`, their names; `fault`, with
which all calls fail; `info`, which is printed; `refused`, with which `run` alone fails.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FLAGS = {"--rm", "--init", "--interactive"}
VALUED = {"--pull", "--network", "--stop-timeout", "--name", "--label", "--log-driver", "--user", "--userns"} | {
    "--volume", "--workdir", "--env", "--env-file", "--entrypoint", "--http-proxy",
}  # fmt: skip
#: What an image says of itself.
OF_IMAGE = {"PATH": "/image/bin:/usr/bin:/bin", "HOME": "/image/home"}


def install(folder: Path, name: str, images: str = "agents/sorter:1", info: str = "[]") -> Path:
    """Write the stand-in as a program of this name. Returns the folder of its state."""
    folder.mkdir(exist_ok=True)
    program, state = folder / name, folder / f"{name}.state"
    (state / "containers").mkdir(parents=True)
    (state / "images").write_text(images)
    (state / "info").write_text(info)
    (state / "calls").touch()
    program.write_text(f"#!{sys.executable} -IS\n" + Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return state


def main() -> int:
    state, words = Path(f"{__file__}.state"), sys.argv[1:]
    with (state / "calls").open("a") as calls:
        calls.write(json.dumps({"words": words, "environment": dict(os.environ)}) + "\n")
    if (state / "fault").exists():
        return fail((state / "fault").read_text(), 1)
    if words[0] == "info":
        print((state / "info").read_text())
    elif words[:2] == ["image", "inspect"]:
        known = words[2] in (state / "images").read_text().split()
        return 0 if known else fail(f"No such image: {words[2]}", 1)
    elif words[0] == "ps":
        label = words[words.index("--filter") + 1].removeprefix("label=")
        for path in (state / "containers").iterdir():
            if json.loads(path.read_text())["label"] == label:
                print(path.name)
    elif words[:2] == ["rm", "--force"]:
        for name in words[2:]:
            with suppress(FileNotFoundError):
                remove(state / "containers" / name)
    elif words[0] == "run":
        return run(state, words[1:])
    else:
        return fail(f"unknown command {words}", 1)
    return 0


def run(state: Path, words: list[str]) -> int:
    if (state / "refused").exists():
        return fail((state / "refused").read_text(), 125)
    found: dict[str, list[str]] = {}
    while words and words[0].startswith("--"):
        name, equals, value = words.pop(0).partition("=")
        if name in VALUED:
            found.setdefault(name, []).append(value if equals else words.pop(0))
        elif name in FLAGS:
            found[name] = []
        else:
            return fail(f"unknown flag: {name}", 125)
    source, target, _ = found["--volume"][0].split(":")
    lines = Path(found["--env-file"][0]).read_text().splitlines()
    passed = {name: value for name, _, value in (line.partition("=") for line in lines)}
    passed |= {name: os.environ[name] for name in found.get("--env", []) if "=" not in name}
    command = [found["--entrypoint"][0], *words[1:]]
    mapped = [word.replace(target, source, 1) if word.startswith(target) else word for word in command]
    command = [new if os.path.exists(new) else word for new, word in zip(mapped, command, strict=True)]
    kept = state / "containers" / found["--name"][0]
    started = subprocess.Popen(command, cwd=source, env=OF_IMAGE | passed, start_new_session=True)
    kept.write_text(json.dumps({"process": started.pid, "label": found["--label"][0]}))
    code = started.wait()
    with suppress(FileNotFoundError):
        kept.unlink()
    return code if code >= 0 else 128 - code


def remove(path: Path) -> None:
    with suppress(ProcessLookupError):
        os.killpg(json.loads(path.read_text())["process"], signal.SIGKILL)
    path.unlink()


def fail(words: str, code: int) -> int:
    print(words, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
