"""The gateway: who reaches a session, what is in the way of a web page, what ends with a session."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

ACCESS = "tests/plugins/external/gateway/test_access.py"
SERVER = "tests/plugins/external/gateway/test_server.py"
CLIENT = "tests/plugins/external/gateway/test_openai_client.py"
STREAMS = "tests/plugins/external/gateway/test_streams.py"
BETWEEN = "tests/plugins/external/gateway/test_streams_between.py"

GATEWAYS: list[Mutant] = [
    *changes_of(
        "plugins/workbench_external/gateway/access.py",
        ACCESS,
        (
            "self._admitted.get(own := _digest(shown[0])) if shown",
            "next(iter(self._admitted.values())) if shown",
            "any secret",
        ),
        (
            "        if found is None:\n",
            "        if found is None and self._admitted and not shown:\n",
            "an unknown secret",
        ),
        ("if any(key != shown[0] and _digest(key) != own", "if any(False", "secrets that disagree"),
        ("return key.startswith(PREFIX) or ", "return ", "a secret that was dismissed may stand beside another"),
        (
            "return self._admitted.pop(_digest(secret), None)",
            "return self._admitted.get(_digest(secret))",
            "a dismissed secret still leads in",
        ),
        ("if not _SECRET.fullmatch(made):", "if not made:", "a secret that can be guessed"),
        ("if _digest(made) in self._admitted:", "if False:", "a session takes the place of another"),
        ('token.strip() if kind.lower() == "bearer" else ""', "token.strip()", "another scheme than Bearer"),
        (
            'if names is not None and headers.get("Host", "").lower() not in names:',
            "if False:",
            "the host is not looked at",
        ),
        ('if "Origin" in headers or', "if", "a page shows its origin"),
        ('or headers.get("Sec-Fetch-Site", "none") != "none"', "", "a page of another site shows no origin"),
        ("in _ALWAYS or names.keys() & inherited.keys()", "in _ALWAYS or True", "variables choose another provider"),
        ('(inherited.get(name), "127.0.0.1,localhost")', "(inherited.get(name),)", "a proxy stands between"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/server.py",
        ACCESS,
        ("            check_sender(request.headers, self._names)\n", "", "a web page is served"),
        ("if not (local or beyond):", "if False:", "other machines reach a gateway"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/asks.py",
        ACCESS,
        (
            '"The gateway failed on this request. The log of its run says why."',
            "str(error)",
            "an agent is told of our files",
        ),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/asks.py",
        CLIENT,
        (
            "return _of_kind(error.kind, error.retry_after)",
            "return Refused(502, error.kind, str(error))",
            "a server's words",
        ),
        ('            found["x-should-retry"] = "false"\n', "            pass\n", "a spent budget is asked again"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/server.py",
        SERVER,
        ("            await _cancel(who.requests)", "            pass", "requests of a dismissed session go on"),
        ("handler_cancellation=True", "handler_cancellation=False", "an agent that hung up still pays"),
        ("if len(who.requests) >= MOST_AT_ONCE:", "if False:", "no bound of requests at once"),
        ("                if len(raw) > MAX_BODY:", "                if False:", "a body in parts has no bound"),
        ("async with asyncio.timeout(BODY_SECONDS):", "if True:", "a body may take for ever"),
        ('if request.headers.get("Content-Encoding", "identity").lower() != "identity":', "if False:", "packed bodies"),
        ("return _whole(body) if _HALF.search(raw) else body", "return body", "halves of characters are passed on"),
        (", parse_float=_finite)", ")", "numbers beyond all are passed on"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/streaming.py",
        SERVER,
        (
            "                work.cancel()\n                await",
            "                await",
            "a stream's call is not cancelled",
        ),
        ("            self._request.transport.abort()", "            pass", "a broken stream looks whole"),
        ("async with asyncio.timeout(PING_SECONDS):", "if True:", "no sign of life"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/streaming.py",
        STREAMS,
        ("self._request.transport.close()  # no end", "pass  # no end", "a stream that broke looks whole"),
    ),
    *changes_of(
        "core/workbench/lm/chunks.py",
        BETWEEN,
        ("not (last or _is_whole(self._told[place]))", "False", "calls are mixed"),
        ("and number not in self.ids", "", "two calls share an id"),
    ),
    *changes_of(
        "plugins/workbench_openai/server.py",
        "tests/plugins/openai/test_relay.py",
        ("max(0, len(self._held) - _LONGEST_END)", "0", "a giant event is searched again with each packet"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/server.py",
        STREAMS,
        ("            if self._draining:", "            if False:", "requests begin while it drains"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/access.py",
        ACCESS,
        ("        if name in found:", "        if False:", "one of two keys is not looked at"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/replaced.py",
        "tests/plugins/external/gateway/test_replacing.py",
        ("                changed = _put(changed, path, new)", "                pass", "no text is replaced"),
        (
            "                changed = _put(changed, (*path, own), value)",
            "                pass",
            "no tool is described",
        ),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/table.py",
        "tests/plugins/external/gateway/test_between_apis.py",
        ("                raise f.bad(at,", "                f.bad(at,", "what changes an answer is dropped"),
    ),
    *changes_of(
        "core/workbench/ledger/retry.py",
        STREAMS,
        ("self._pieces.source.begun or", "False or", "a stream that broke is asked again"),
        ("or error.kind == FailureKind.TIMEOUT", "or False", "a deadline of the client is asked past"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/fields.py",
        nodes_of(CLIENT, "test_calls_without_ids_get_the_same_ones_each_time_and_different_ones_within_an_answer"),
        (
            'number = "call_" + hashlib.sha256(f"{sample} {place} {said}".encode()).hexdigest()[:24]',
            'number = make_id("call_")',
            "ids of calls differ after a resume",
        ),
        ('f"{sample} {place} {said}"', 'f"{sample} {said}"', "calls of one answer share an id"),
    ),
    *changes_of(
        "plugins/workbench_external/gateway/responses.py",
        CLIENT,
        ("messages += stored.conversation(number)", "stored.conversation(number)", "an earlier answer is forgotten"),
        ("if open_turn:  # one", "if False:  # one", "a turn of the model falls apart"),
    ),
]
