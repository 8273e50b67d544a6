"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.errors import SpecError
from workbench.lm import is_loopback


@dataclass(frozen=True)
class Settings:
    """Settings of `workbench serve`.

    host, port: address to listen on; port 0: any free one.
    concurrency: maximum running requests. waiting: maximum waiting requests; further ones are refused.
    deadline: seconds for a request, from its arrival; None: no limit.
    max_body: maximum bytes of a request.
    token: that clients must send; None: anyone may send requests.
    trace: whether clients may request the steps of each node.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    concurrency: int = 16
    waiting: int = 64
    deadline: float | None = None
    max_body: int = 1_000_000
    token: str | None = None
    trace: bool = False

    @property
    def is_local(self) -> bool:
        """Return True if only this machine can reach it."""
        return is_loopback(f"http://[{self.host}]" if ":" in self.host else f"http://{self.host}")

    def check(self, no_auth: bool) -> None:
        """Raise SpecError for a server that anyone on the network could use, unless that is intended."""
        if not self.is_local and self.token is None and not no_auth:
            raise SpecError(
                f"{self.host} can be reached from other machines, and no token is set",
                hint="Set WORKBENCH_SERVE_TOKEN, or add --no-auth if a proxy in front of it checks access.",
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise SpecError("the token must be printable ASCII", hint="Make one with: openssl rand -hex 32")
