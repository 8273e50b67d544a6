"""Runs the command of a row in a container image, with docker or podman."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench.runtime import Context
from workbench_external.process import Finished, run_program

#: Working directory of a row in its container. It is the same for all rows, so that prompts that name it are equal.
WORK = Path("/work")
#: Timeout in seconds for client commands other than rows.
_PATIENCE = 60
#: The clients to try, in order. For each: the format for the question whether it runs without root, and the text for
#: yes.
_CLIENTS = {"docker": ("{{.SecurityOptions}}", "name=rootless"), "podman": ("{{.Host.Security.Rootless}}", "true")}
#: Exit code of a client that could not start the container.
_NOT_STARTED = 125
_LABEL = "workbench.machine"
_NAME = re.compile(r"workbench-(\d+)-(\d+)-[0-9a-f]+")
#: Variables that the client reads itself. A row's variables are for its container.
_OF_CLIENT = re.compile(
    r"PATH|HOME|USER|TMPDIR|GODEBUG|(?:LD|XDG|DOCKER|CONTAINERS?|STORAGE|SSL|SSH|DBUS)_\w+|(?:HTTPS?|ALL|NO)_PROXY",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Client:
    """A container client on this machine, and the options for the user of its containers."""

    name: str
    program: str
    options: Sequence[str]

    @classmethod
    def find(cls, name: str) -> Client | str | None:
        """Return the client of this name, or the reason why it does not work; None if it is not installed."""
        program = shutil.which(name)
        if program is None:
            return None
        form, sign = _CLIENTS[name]
        asked = _ask(program, "info", "--format", form)
        if asked.returncode:
            return _said(asked)
        return cls(name, program, _ownership(name, sign in asked.stdout))

    def has(self, image: str) -> bool:
        return _ask(self.program, "image", "inspect", image).returncode == 0

    def run(self, name: str, image: str, command: Sequence[str], place: Path, passed: Sequence[str]) -> list[str]:
        """Return the command line of a container.

        It uses this machine's network, as the gateway listens only on its loopback. The image's entrypoint is replaced,
        so that only `command` runs. No logs are kept, because they would contain data of the rows.
        """
        fixed = ["--rm", "--init", "--interactive", "--pull", "never", "--network", "host", "--stop-timeout", "0"]
        named = ["--name", name, "--label", f"{_LABEL}={_machine()}", "--log-driver", "none"]
        mounted = ["--volume", f"{place}:{WORK}:z", "--workdir", str(WORK)]
        started = ["--entrypoint", command[0], image, *command[1:]]
        return [self.program, "run", *fixed, *named, *self.options, *mounted, *passed, *started]

    def remove(self, names: Collection[str]) -> None:
        if names:
            _ask(self.program, "rm", "--force", *names)

    def remove_abandoned(self) -> None:
        """Remove the containers of our killed processes. Nothing else ends them, since no client is their parent."""
        if not _machine():
            return
        listed = _ask(self.program, "ps", "--all", "--filter", f"label={_LABEL}={_machine()}", "--format", "{{.Names}}")
        named = [found for line in listed.stdout.split() if (found := _NAME.fullmatch(line))]
        self.remove([found[0] for found in named if _begin_of(found[1]) != found[2]])


class Containers:
    """The container clients of this machine, shared by the rows of a run."""

    def __init__(self, clients: Sequence[Client]):
        self._clients = clients
        self._holders: dict[str, Client] = {}  # by image

    @classmethod
    async def open(cls) -> Containers:
        """Find the clients. Raises SpecError if none works."""
        return await asyncio.to_thread(cls._open)

    @classmethod
    def _open(cls) -> Containers:
        found = {name: Client.find(name) for name in _CLIENTS}
        clients = [client for client in found.values() if isinstance(client, Client)]
        if not clients:
            faults = [f"{name} does not answer: {fault}" for name, fault in found.items() if isinstance(fault, str)]
            raise SpecError(
                "; ".join(faults) or "the image cannot be started: neither docker nor podman is on PATH",
                hint="Start its daemon, or install podman, which needs none."
                if faults
                else "Install podman or docker, e.g. `apt-get install podman`, or leave image out.",
                path=("image",),
            )
        for client in clients:
            client.remove_abandoned()
        return cls(clients)

    async def holder(self, image: str) -> Client:
        """Return the client that has an image. Raises SpecError if none has: pulling it would use up the row's time."""
        if image not in self._holders:
            for client in self._clients:
                if await asyncio.to_thread(client.has, image):
                    self._holders[image] = client
                    break
            else:
                names = [client.name for client in self._clients]
                raise SpecError(
                    f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no image '{image}' on this machine",
                    hint=f"Fetch it first: {names[0]} pull {image}",
                    path=("image",),
                )
        return self._holders[image]

    def warnings(self) -> list[str]:
        return []

    def kept_state(self) -> list[str]:
        return []

    async def aclose(self) -> None: ...


async def run_in_image(
    image: str, ctx: Context, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], **further: Any
) -> Finished:
    """Run `run_program` in a container, and remove the container afterwards: killing its client would not end it.

    Raises SpecError if no row can run in it, and OSError if it cannot be started for this row.
    """
    containers = await ctx.shared("containers", Containers.open)
    client = await containers.holder(image)
    name = f"workbench-{os.getpid()}-{_begin_of(os.getpid()) or 0}-{secrets.token_hex(8)}"
    with _passed(env, cwd.parent) as (options, environment):
        line = client.run(name, image, command, cwd, options)
        try:
            ended = await run_program(line, cwd=cwd, env=environment, **further)
        finally:
            await asyncio.to_thread(client.remove, [name])
    if ended.code == _NOT_STARTED:
        raise OSError(f"{client.name} says: {one_line(ended.stderr.strip())[:300]}")
    return ended


@contextmanager
def _passed(env: Mapping[str, str], folder: Path) -> Generator[tuple[list[str], dict[str, str]]]:
    """Return the options that pass variables to a container, and the environment of the client.

    Values never appear on a command line, which all users of the machine can read: the client has them in its
    environment. Variables that the client itself would obey are passed in a file, which the container does not see.
    """
    with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", errors="replace") as file:
        options = ["--env-file", file.name]
        environment = dict(os.environ)
        for name, value in env.items():
            if not _OF_CLIENT.fullmatch(name):
                options += ["--env", name]
                environment[name] = value
            elif "\n" in value:
                raise OSError(f"a container takes no line break in the variable {name}")
            else:
                file.write(f"{name}={value}\n")
        file.flush()
        yield options, environment


def _ownership(name: str, rootless: bool) -> list[str]:
    """Return options that make us the owner of files that a container writes, so that we can read and delete them."""
    user = ["--user", f"{os.getuid()}:{os.getgid()}"]
    if name == "docker":
        return ["--user", "0:0"] if rootless else user  # without root, the container's root is our user
    # Proxy variables that podman passes on by default are not the row's.
    return [*(["--userns", "keep-id"] if rootless else []), *user, "--http-proxy=false"]


def _ask(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [program, *words]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"nothing in {_PATIENCE} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _said(asked: subprocess.CompletedProcess[str]) -> str:
    return one_line(asked.stderr.strip() or f"exit code {asked.returncode}")[:300]


def _begin_of(process: int | str) -> str:
    """Return the start time of a process in clock ticks, as process ids are reused; "" if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return ""


def _machine() -> str:
    """Return the scope of our process ids, as a daemon may serve other machines or containers; "" if unknown."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""
