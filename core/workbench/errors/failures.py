"""The kinds of failure: of one call of a language model, and of a node on one example."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class FailureKind(StrEnum):
    """The kind of a failure of a call or a node. Equal to its text, which databases and reports hold.

    Plugins may use kinds of their own, `FailureKind("quota")`; all their properties are False.
    """

    # Of one attempt to call a language model; a node whose call failed takes over the kind.
    RATE_LIMIT = "rate_limit"  # the server asks to wait
    SERVER = "server"  # the server reports an error of its own
    CONNECTION = "connection"  # the request never left
    BROKEN = "broken"  # the answer broke off
    TIMEOUT = "timeout"
    BAD_BODY = "bad_body"  # an answer that cannot be parsed
    PROVIDER = "provider"  # the provider's plugin raised
    AUTH = "auth"  # no key, a wrong one, or an empty account
    BLOCKED = "blocked"  # a firewall or proxy refused the request, or no model is at this address
    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"  # more than the model's context holds
    UNSUPPORTED = "unsupported"  # the model lacks what the request asks for
    WORKER = "worker"  # the process that ran the row ended, time after time
    # Of a model's answer.
    REFUSED = "refused"
    EMPTY = "empty"
    CUT = "cut"  # at max_tokens
    UNPARSED = "unparsed"
    # Of a node.
    UPSTREAM = "upstream"  # it needs what an optional node before it did not write, or cannot use what one wrote
    BRANCH = "branch"  # no case matches
    CODE = "code"  # its code raised
    DATA = "data"  # the example lacks a field, or holds what cannot be read
    ENVIRONMENT = "environment"
    JUDGE = "judge"  # the judge gave no grade
    MEMBERS = "members"  # too few members of a team answered
    POLICY = "policy"  # a rule of `policy:` forbids it
    STEPS = "steps"  # no end within the steps allowed
    TOOL = "tool"
    USER = "user"  # the simulated user
    VERIFIER = "verifier"
    # Of an agent that runs outside.
    START = "start"  # it cannot be started or reached
    EXIT = "exit"  # it ended with an exit code, or its service with a status, that is a failure
    CRASH = "crash"  # a signal killed it
    DEADLINE = "deadline"
    OUTPUT = "output"  # it printed too much
    ENDED = "ended"  # the row ended before it did
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
        """Return True if the server may have done the work, and may bill it: then the worst case counts as spent."""
        return self in _MAYBE_BILLED

    @property
    def infrastructure(self) -> bool:
        """Return True if the row may have a result when it is run again: servers, networks, keys and workers failed."""
        return self in _RETRYABLE or self in _BETWEEN

    @property
    def no_result(self) -> bool:
        """Return True if the failure says nothing about the workflow: infrastructure, the data or the judge failed.

        Such a row has no score and counts in no mean. A row that failed otherwise scores 0.
        """
        return self.infrastructure or self in (FailureKind.DATA, FailureKind.JUDGE)

    @property
    def dead_server(self) -> bool:
        """Return True if many of these in a row, after all attempts, mean that the server is gone."""
        return self in _RETRYABLE or self in (FailureKind.PROVIDER, FailureKind.BLOCKED)


_MAYBE_BILLED = frozenset({FailureKind.BROKEN, FailureKind.TIMEOUT, FailureKind.BAD_BODY})
_RETRYABLE = _MAYBE_BILLED | {FailureKind.RATE_LIMIT, FailureKind.SERVER, FailureKind.CONNECTION}
_BETWEEN = frozenset({FailureKind.PROVIDER, FailureKind.AUTH, FailureKind.BLOCKED, FailureKind.WORKER})


def count_missing(failures: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of rows without a result among those of failed rows, by the kind of failure."""
    return {kind: n for kind, n in failures.items() if FailureKind(kind).no_result}


def describe_missing(missing: Mapping[str, int], noun: str = "row") -> str:
    """Describe rows without a result: `3 rows have no result (server 2, data 1)`; empty if there are none.

    noun: what is counted, if rows were answered several times.
    """
    total = sum(missing.values())
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(missing.items()))
    return f"{total} {noun}{'s have' if total != 1 else ' has'} no result ({kinds})" if total else ""
