"""What is paid: reservations, attempts, the journal, the rate limit."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

LEDGER = "core/workbench/ledger/ledger.py"
BUDGET, ATTEMPTS, JOURNAL = (f"tests/ledger/test_{name}.py" for name in ("budget", "attempts", "journal"))
CEILINGS, WAITING = "core/workbench/ledger/ceilings.py", "tests/ledger/test_waiting.py"
AT_ONCE = "tests/run/test_at_once.py"
REUSE, MONEY = "tests/ledger/test_reuse.py", "tests/run/test_money.py"
REPORT_TESTS = "tests/proof/test_report.py"
SHARES, BOUNDS = "tests/run/test_shares.py", "tests/run/test_estimate_bounds.py"
CHOICE = "tests/run/test_default_optimizers.py"
PAID: list[Mutant] = [
    *changes_of(
        CEILINGS,
        BUDGET,
        (
            "+ getattr(more, what) +",
            "+",
            "the call itself is not counted against the ceiling",
        ),
        (
            "if needed > ceiling - self._held_for_proof[what] + 1e-12:",
            "if needed > ceiling + 1e-12:",
            "search spends what is set aside for the proof",
        ),
        ("self.reserved.add(most)", "pass", "nothing is reserved: calls under way do not hold their place"),
        (
            "account.seconds >= (minutes - held) * 60:",
            "account.seconds >= (minutes - held) * 6000:",
            "minutes are counted as hundreds of them",
        ),
        (
            "return max(0.0, ceiling - used - self._held_for_proof[what])",
            "return max(0.0, ceiling - used)",
            "optimizers are told of what is set aside",
        ),
    ),
    *changes_of(
        CEILINGS,
        WAITING,
        (
            "self.check(most)\n",
            "raise self._refusal(most, beside=self.reserved)\n",
            "a reservation is treated as spending",
        ),
        ("async with self._turn:", "if True:", "cheap calls starve a dear one"),
        ("self._freed.set_result(None)", "pass", "who waits is never woken"),
        ("self.reserved.calls -= held.calls\n        held", "held", "a call that was sent stays reserved"),
        ("self.reserved.usd -= held.usd", "pass", "reserved dollars are given back only when nothing is in flight"),
        ("            self.reserved = Spend()", "            pass", "a rest of rounding is waited for"),
    ),
    *changes_of(
        LEDGER,
        WAITING,
        ("if await limiter.outlast_pause():", "if False:", "who waited for room does not keep to a pause"),
        ("self.ceilings.check(Spend())", "pass", "who paused sends though the run has ended"),
    ),
    *changes_of(
        LEDGER,
        BUDGET,
        (
            "return self.earlier_seconds + time.monotonic() - self.started",
            "return time.monotonic() - self.started",
            "a resumed run has its minutes again",
        ),
        (
            "parts = (*request.messages, *({",
            "parts = (*request.messages, *({} and {",
            "tools are not in the estimate of a prompt",
        ),
    ),
    *changes_of(
        CEILINGS,
        ATTEMPTS,
        (
            "used = max(getattr(account.spent, what), getattr(account.sent, what))",
            "used = getattr(account.spent, what)",
            "what was sent without an answer is not counted",
        ),
        (
            "self._account.sent.calls += held.calls",
            "pass",
            "requests that left are not counted",
        ),
    ),
    *changes_of(
        LEDGER,
        ATTEMPTS,
        ("error, held if error.kind.maybe_billed else Spend())", "error, Spend())", "a timeout costs nothing"),
        ('not (again or error.kind == "auth"):', "not again:", "a refused key is journalled"),
        ("self._count(role, Spend(1))", "self._count(role, Spend(0))", "failed attempts are no calls"),
        ("flying = self._flying.get(key)", "flying = None", "equal requests at once are paid twice"),
        ("self.longer_prompts.get(lm.identity, 1.0) * prompt / expected", "1.0", "estimates that were too low stay so"),
        (
            "if failed := self.journal.count_failed_attempts(key) if self._resumed else 0:",
            "if failed := 0:",
            "attempts of earlier processes are forgotten",
        ),
    ),
    *changes_of(
        LEDGER,
        JOURNAL,
        (
            "if not self._resumed and bytes.fromhex(key[:16]) not in self.touched:",
            "if bytes.fromhex(key[:16]) not in self.touched:",
            "a resumed run pays for all calls again",
        ),
        ("self.spent.cached += 1", "pass", "answers from the journal are not counted"),
        (
            "if (known := self.journal.find_effect(key) or self._earlier.find_effect(key)) is not None:",
            "if (known := None) is not None:",
            "a tool is called again in a replay",
        ),
        (
            "self._intents.add(key, role, held.tokens, held.usd)",
            "pass",
            "no intent is written before a request leaves",
        ),
    ),
    *changes_of(
        "core/workbench/ledger/spend.py",
        JOURNAL,
        ("recall(request, settled.response)", "pass", "a model that remembers is not told what the journal answered"),
    ),
    *changes_of(
        LEDGER,
        nodes_of(JOURNAL, "test_an_answer_is_seen_only_once_it_is_committed"),
        ("await asyncio.shield(done)\n        if", "pass\n        if", "an answer is seen before it is committed"),
    ),
    *changes_of(
        "core/workbench/ledger/request_log.py",
        JOURNAL,
        ("if journal.has_call(key):", "if False:", "settled calls count as lost ones too"),
    ),
    *changes_of(
        "core/workbench/ledger/dead_server.py",
        ATTEMPTS,
        ("len(keys) >= DEAD_AFTER", "len(keys) > DEAD_AFTER + 20", "a dead server is asked for long"),
        ("self._journal.delete_call(dead)", "pass", "failures of a dead server are replayed"),
        (
            "keys.clear()\n            return None\n",
            "return None\n",
            "an answer in between does not keep the run alive",
        ),
    ),
    *changes_of(
        "core/workbench/run/session.py",
        MONEY,
        ('winner == baseline and task.spec.proof.when_unchanged == "skip"', "False", "the baseline is tested unasked"),
    ),
    *changes_of(
        "core/workbench/run/start.py",
        MONEY,
        ("if not options.allow_unproved and (lacking", "if False and (lacking", "a budget without a proof is accepted"),
    ),
    *changes_of(
        "core/workbench/ledger/spend.py",
        MONEY,
        ("(price is None or assumed)", "price is None", "a proxy on this machine makes a ceiling in dollars void"),
    ),
    *changes_of(
        LEDGER,
        REUSE,
        (' and getattr(lm, "reusable", True)', "", "answers of other weights are taken over"),
        ("(self.reused, self.spent) if self.searching", "(self.reused,) if self.searching", "a search is cut off late"),
        ("tokens=request.logprobs", "tokens=False", "a rollout is taken over without its tokens"),
        (" or self.journal.has_answer()", "", "a run that paid nothing cannot be resumed"),
    ),
    *changes_of(
        LEDGER,
        "tests/ledger/test_latency.py",
        ("requested += time.monotonic() - sent", "requested = time.monotonic() - begun", "latency holds our own queue"),
    ),
    *changes_of(
        "core/workbench/store/earlier_calls.py",
        REUSE,
        ('if row["checksum"] != checksum(*summed_parts(row)):', "if False:", "damaged rows are taken over"),
        ("not _failed(answer)", "True", "a failed answer is kept for ever"),
    ),
    *changes_of(
        "core/workbench/store/journal.py",
        REUSE,
        ('"and reused is null",', '"",', "what an earlier run paid for counts as sent"),
    ),
    *changes_of(
        "core/workbench/ledger/bill.py",
        JOURNAL,
        ("Spend(attempts + open_attempts, 0,", "Spend(attempts, 0,", "requests without an answer are not on the bill"),
    ),
    *changes_of(
        "core/workbench/ledger/bill.py",
        REPORT_TESTS,
        ("if last is None or self.journal.has_answer():", "if True:", "a dead server is taken for a small budget"),
    ),
    *changes_of(
        "core/workbench/ledger/spend.py",
        BUDGET,
        (
            "if (price is None or assumed) and ceiling is not None:",
            "if False:",
            "a ceiling in dollars is kept without a price",
        ),
    ),
    *changes_of(
        "core/workbench/ledger/spend.py",
        ATTEMPTS,
        ("return self.prompt_tokens + self.completion_tokens", "return self.prompt_tokens", "answers cost no tokens"),
    ),
    *changes_of(
        "core/workbench/lm/protocol.py",
        JOURNAL,
        ("if self.replica:", "if False:", "a fresh sample has the key of the first"),
        (
            "body = _encode([identity, asked])",
            "body = _encode([asked])",
            "two models share their answers",
        ),
        ("if self.temperature:", "if self.temperature > 1:", "requests of two temperatures share a key"),
        ("if self.stop:", "if False:", "requests with other stops share a key"),
    ),
    *changes_of(
        "core/workbench/ledger/retry.py",
        ATTEMPTS,
        ("error.retryable and self.failed < self.limit", "self.failed < self.limit", "what cannot mend is tried again"),
        ("wait = 0.25 * 2 ** min(attempt, 20)", "wait = 0.25 * attempt", "pauses do not double"),
        ("min(wait, LONGEST_PAUSE)", "wait", "a server may stop the run for ever"),
    ),
    *changes_of(
        "core/workbench/ledger/retry.py",
        "tests/ledger/test_rate_limit.py",
        ("self.rate_limits += 1", "self.rate_limits += 1; self.failed += 1", "rate limits use up the attempts"),
        ("and self.rate_limits < MOST_RATE_LIMITS", "", "a call that is always refused never ends"),
    ),
    *changes_of(
        "core/workbench/base/files.py",
        "tests/cli/test_crafted_database.py",
        ("if not stat.S_ISREG(path.lstat().st_mode):", "if False:", "a link beside a database is followed"),
        ("_last_bytes(path, len(_NAMES_ANOTHER)) == _NAMES_ANOTHER", "False", "a journal deletes another file"),
    ),
    *changes_of(
        "core/workbench/ledger/rate_limit.py",
        "tests/ledger/test_rate_limit.py",
        ("max(1, self.size // 2)", "max(1, self.size - 1)", "a rate limit hardly lowers the number of requests"),
        ("if now - self._last_cut > 1.0:", "if True:", "one burst of refusals cuts the size to one"),
        (
            "max(self._pause_until, now + pause)",
            "max(self._pause_until, now)",
            "nobody waits where the server asks for it",
        ),
        (
            "if self._successes >= self.size and self.size < self.largest:",
            "if self._successes >= self.size:",
            "more requests at once than configured",
        ),
    ),
    *changes_of(
        "core/workbench/study/study.py",
        SHARES,
        ("part = self.narrow(share=1 / left)", "part = self.narrow(share=1.0)", "the first of a chain takes all"),
        (
            'limits=await self.ledger.effect("share", [self.run_id, self.name, left], limits)',
            "limits=part.limits",
            "a resumed chain gives other shares",
        ),
        (
            "self._within_limits(self.evaluator.program(workflow).max_calls)",
            "pass",
            "a run without a score passes the end of a share",
        ),
    ),
    *changes_of(
        "core/workbench/run/session.py",
        SHARES,
        ("take_share(len(turns) - number)", "take_share(1)", "the first of a chain takes all"),
        ("turns = self.optimizers * self.task.spec.rounds", "turns = self.optimizers", "rounds are left out"),
    ),
    *changes_of(
        "core/workbench/run/sealed_test.py",
        BOUNDS,
        ("if val[what] + sides", "if False and val[what] + sides", "a paid proof is cut"),
    ),
    *changes_of(
        "core/workbench/run/sealed_test.py",
        AT_ONCE,
        (
            "headroom = _headroom(task, {e.workflow for e in runs}, ledger, evaluator.runtime)",
            "headroom = dict[str, float]()",
            "what is left pays no dear call",
        ),
        ("while self._begun and not self._over", "while False", "first sides take what second sides need"),
    ),
    *changes_of(
        "core/workbench/run/cost_estimate.py",
        BOUNDS,
        ("if not len(task.dataset.test):", "if False:", "a run begins that no row can prove"),
    ),
    *changes_of(
        "core/workbench/runtime/expected_cost.py",
        BOUNDS,
        (
            "models = models_of(task, searched=True)",
            "models = models_of(task)",
            "a dearer model of the search is left out",
        ),
        ("prompt += _demo_tokens(task, address) * (domain.demos or 0)", "pass", "demos of the search cost nothing"),
        ("min(1.0, budget.calls / self.calls)", "1.0", "an estimate names more calls than there are"),
    ),
    *changes_of(
        "core/workbench/run/start.py",
        CHOICE,
        (
            'chosen = None if begins else stored.get("chosen")',
            "chosen = None",
            "a resumed run does not go on with what was chosen",
        ),
    ),
]
