"""The kinds of failure: of one attempt at a language model, and of a node on one example."""

from __future__ import annotations

from enum import StrEnum


class FailureKind(StrEnum):
    """How an attempt or a node failed. Equal to its text, as databases and reports have it.

    A kind of a plugin's own is one too, `FailureKind("quota")`, without any of the properties.
    """

    # Of an attempt at a language model; a node whose call failed has the same.
    RATE_LIMIT = "rate_limit"  # asked to wait
    SERVER = "server"  # the server reports a fault of its own
    CONNECTION = "connection"  # the request never left
    BROKEN = "broken"  # the answer broke off
    TIMEOUT = "timeout"
    BAD_BODY = "bad_body"  # an answer that cannot be read
    PROVIDER = "provider"  # the plugin that should have asked raised
    AUTH = "auth"  # no key, a wrong one, or an empty account
    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"  # more than the model's context holds
    UNSUPPORTED = "unsupported"  # the model lacks what the request asks for
    # Of what a model said.
    REFUSED = "refused"
    EMPTY = "empty"
    CUT = "cut"  # at max_tokens
    UNPARSED = "unparsed"
    # Of a node.
    BRANCH = "branch"  # no case fits
    CODE = "code"  # its code raised
    DATA = "data"  # the example lacks a field
    ENVIRONMENT = "environment"
    JUDGE = "judge"
    MEMBERS = "members"  # too few members of a team answered
    POLICY = "policy"  # a rule of `policy:` forbids it
    STEPS = "steps"  # no end within the steps allowed
    TOOL = "tool"
    USER = "user"  # the simulated user
    VERIFIER = "verifier"
    # Of the scoring of what the nodes gave.
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
        """Whether another attempt may mend it."""
        return self in _RETRYABLE

    @property
    def maybe_billed(self) -> bool:
        """Whether the server may have done the work, and may bill it: the worst case counts as sent."""
        return self in _MAYBE_BILLED

    @property
    def infrastructure(self) -> bool:
        """Whether it says nothing about the workflow: the proof leaves such pairs out. All other failures earn
        nothing."""
        return self in _RETRYABLE or self in (FailureKind.PROVIDER, FailureKind.AUTH)

    @property
    def dead_server(self) -> bool:
        """Whether many in a row, all attempts used, mean that the server is gone."""
        return self in _RETRYABLE or self is FailureKind.PROVIDER


_MAYBE_BILLED = frozenset({FailureKind.BROKEN, FailureKind.TIMEOUT, FailureKind.BAD_BODY})
_RETRYABLE = _MAYBE_BILLED | {FailureKind.RATE_LIMIT, FailureKind.SERVER, FailureKind.CONNECTION}
