"""Kinds of failure: of one call of a language model, and of a node on one example."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class FailureKind(StrEnum):
    """The kind of a failure of a call or a node. Equal to its text, which is stored in databases and reports.

    Plugins may use kinds of their own, `FailureKind("quota")`; all their properties are False.
    """

    # Of one attempt to call a language model. A node whose call failed has the same kind.
    RATE_LIMIT = "rate_limit"  # the server asks to wait
    SERVER = "server"  # the server reports an error of its own
    CONNECTION = "connection"  # the request never left
    NO_SERVER = "no_server"  # nor can it: nothing listens at the address
    BROKEN = "broken"  # the answer broke off
    TIMEOUT = "timeout"
    BAD_BODY = "bad_body"  # an answer that cannot be parsed
    PROVIDER = "provider"  # the provider's plugin raised
    AUTH = "auth"  # no key, a wrong one, or an empty account
    BLOCKED = "blocked"  # a firewall or proxy refused the request, or no model is at this address
    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"  # longer than the model's context
    UNSUPPORTED = "unsupported"  # the model does not support a part of the request
    WORKER = "worker"  # the process that ran the row ended repeatedly
    # Of a model's answer.
    REFUSED = "refused"
    EMPTY = "empty"
    CUT = "cut"  # at max_tokens
    UNPARSED = "unparsed"
    # Of a node.
    UPSTREAM = "upstream"  # an output of an earlier optional node is missing or unusable
    BRANCH = "branch"  # no case matches
    CODE = "code"  # its code raised
    DATA = "data"  # the example has no such field, or an unreadable value
    ENVIRONMENT = "environment"
    JUDGE = "judge"  # the judge gave no grade
    MEMBERS = "members"  # too few members of a team answered
    POLICY = "policy"  # a rule of `policy:` forbids it
    STEPS = "steps"  # the allowed steps did not reach an end
    TOOL = "tool"
    USER = "user"  # the simulated user
    VERIFIER = "verifier"
    # Of an external agent.
    START = "start"  # it cannot be started or reached
    EXIT = "exit"  # it, or its service, ended with a code or status that is a failure
    CRASH = "crash"  # a signal killed it
    DEADLINE = "deadline"
    OUTPUT = "output"  # it printed too much
    ENDED = "ended"  # the row ended before the agent
    # Of a search.
    ENGINE = "engine"  # the model that plays the engine wrote no documents
    DOCUMENT = "document"  # it has no such page, or does not exist
    # Of the scoring.
    METRIC = "metric"

    @classmethod
    def _missing_(cls, value: object) -> FailureKind | None:
        if not isinstance(value, str):
            return None
        own = str.__new__(cls, value)
        own._name_, own._value_ = value.upper(), value
        return own

    @property
    def retryable(self) -> bool:
        """Return True if another attempt may succeed."""
        return self in _RETRYABLE

    @property
    def maybe_billed(self) -> bool:
        """Return True if the server may have done the work and may bill it. The worst case then counts as spent."""
        return self in _MAYBE_BILLED

    @property
    def infrastructure(self) -> bool:
        """Return True if running the row again may give a result: a server, network, key or worker failed."""
        return self in _RETRYABLE or self in _BETWEEN

    @property
    def no_result(self) -> bool:
        """Return True if the failure is no evidence about the workflow: infrastructure, the data or the judge failed.

        Such a row has no score and counts in no mean. A row with any other failure scores 0.
        """
        return self.infrastructure or self in (FailureKind.DATA, FailureKind.JUDGE)

    @property
    def dead_server(self) -> bool:
        """Return True if many of these in a row, after all attempts, mean that the server is down."""
        return self in _RETRYABLE or self in (FailureKind.PROVIDER, FailureKind.BLOCKED)


_MAYBE_BILLED = frozenset({FailureKind.BROKEN, FailureKind.TIMEOUT, FailureKind.BAD_BODY})
_UNSENT = frozenset({FailureKind.CONNECTION, FailureKind.NO_SERVER})
_RETRYABLE = _MAYBE_BILLED | _UNSENT | {FailureKind.RATE_LIMIT, FailureKind.SERVER}
_BETWEEN = frozenset({FailureKind.PROVIDER, FailureKind.AUTH, FailureKind.BLOCKED, FailureKind.WORKER})


def count_missing(failures: Mapping[str, int]) -> dict[str, int]:
    """Return the number of rows without a result among failed rows, by kind of failure."""
    return {kind: n for kind, n in failures.items() if FailureKind(kind).no_result}


def describe_missing(missing: Mapping[str, int], noun: str = "row") -> str:
    """Describe rows without a result: `3 rows have no result (server 2, data 1)`; empty if there are none.

    noun: the name of the counted items, if rows were answered several times.
    """
    total = sum(missing.values())
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(missing.items()))
    return f"{total} {noun}{'s have' if total != 1 else ' has'} no result ({kinds})" if total else ""
