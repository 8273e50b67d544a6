"""What code and tools may do, and what is read as a call."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

POLICY = "core/workbench/spec/policy.py"
SANDBOX_TESTS = "tests/plugins/sandbox/test_sandbox.py"
ATTACKS = nodes_of(SANDBOX_TESTS, "test_every_attack_is_stopped")
ENDS = nodes_of(
    SANDBOX_TESTS,
    "test_each_way_to_fail_is_told_apart_and_the_next_call_works",
    "test_what_has_no_end_is_ended_by_its_name",
)
ANSWERS = nodes_of(
    SANDBOX_TESTS, "test_an_answer_of_another_form_is_a_bad_result", "test_an_answer_is_kept_whole_or_cut"
)
OPENED = nodes_of(
    SANDBOX_TESTS,
    "test_a_weaker_level_than_a_boundary_is_refused_unless_the_user_allows_it",
    "test_the_strongest_of_all_sandboxes_is_taken_and_the_others_closed",
)
ALLOWED: list[Mutant] = [
    *changes_of(
        POLICY,
        "tests/spec/test_policy.py",
        ("doubtful = self.allow is None", "doubtful = False", "a text gets round a denial of a number"),
        ("else met and all(met) and sure)", "else any(met))", "a permission holds in doubt"),
        ("next((r for r in self.rules if", "next((r for r in reversed(self.rules) if", "the last rule decides"),
        (".fullmatch(text))", ".search(text))", "a part of a text is enough"),
        ("        return doubtful\n", "        return not doubtful\n", "a search that takes too long"),
        ("number >= self.min)", "number > self.min)", "the least number is too small"),
        ("number <= self.max)", "number < self.max)", "the largest number is too large"),
        ('else (self.default, "")', 'else ("allow", "")', "the default is to allow"),
        (
            "(length <= self.max_length if length is not None",
            "(length < self.max_length if length is not None",
            "the longest text is too long",
        ),
        ("alike = may_equal if doubtful", "alike = surely_equal if doubtful", "a text gets round a denial of a value"),
    ),
    *changes_of(
        POLICY,
        "tests/spec/test_policy_spellings.py",
        ("(any(met) or not sure if doubtful", "(any(met) if doubtful", "a text in the way passes a denial"),
        ("math.nan if number in (math.inf, -math.inf) else number", "number", "infinity is a number"),
        ("parsed = from_json(value)", "parsed = value", "JSON in a text passes a denial"),
        ("found = [_objects(from_json(item)) for item in value]", "found = []", "a list passes a denial"),
    ),
    *changes_of(
        "core/workbench/spec/likeness.py",
        "tests/spec/test_policy_spellings.py",
        ("unescape(text), literal,", "", "escapes of HTML and of literals"),
        ("alike = type(value) is type(wanted) or", "alike = True or", "true is 1"),
        (
            "not isinstance(value, str | int | float):\n        return True",
            "not isinstance(value, str | int | float):\n        return False",
            "a list with the value passes a denial",
        ),
        (".upper().casefold()", "", "another case passes a denial"),
        (
            "json.loads(value, object_pairs_hook=_without_twins)",
            "json.loads(value)",
            "a key that stands twice hides its first value",
        ),
        ('unicodedata.normalize("NFKC", text)', "text", "wide letters pass a denial"),
        ("return number is None or number == as_number(wanted)", "return number == as_number(wanted)", "words pass"),
    ),
    *changes_of(
        "core/workbench/kit/acting/confine.py",
        "tests/plugins/environments/test_confined_sql.py",
        ("        seccomp()\n", "", "a session may call the whole kernel"),
        ("        landlock(readable)\n", "", "a session may open files"),
        ("(resource.RLIMIT_FSIZE, 0),", "", "a session may write files"),
    ),
    *changes_of(
        "core/workbench/kit/acting/confine.py",
        "tests/kit/test_chat_template.py",
        ("        landlock(readable)\n", "        landlock(['/'])\n", "a template may read files"),
    ),
    *changes_of(
        "plugins/workbench_environments/sql_process.py",
        "tests/plugins/environments/test_confined_sql.py",
        ("if action == _FUNCTION and second not in FUNCTIONS:", "if False:", "every function of SQLite may be used"),
        ("(action == _READ and first in VIRTUAL)", "False", "virtual tables can be read"),
        (
            "if action == _PRAGMA:\n            return pragma",
            "if action == _PRAGMA:\n            return 0",
            "pragmas work",
        ),
        ('self.verbs.add("delete")  # REPLACE', "pass  # REPLACE", "replacing is no deleting"),
        ("steps // often)", "steps * 1000)", "a script of a row runs on"),
    ),
    *changes_of(
        POLICY,
        "tests/runtime/test_policy_enforced.py",
        ('("allow", "ask", "deny").index', '("deny", "ask", "allow").index', "the weakest policy holds"),
        (
            "for i in self.inherited if tool in i.tools)",
            "for i in self.inherited if False)",
            "the policy of a library does not hold",
        ),
        ('if verdict == "deny" else None', "if False else None", "a denied call is made"),
    ),
    *changes_of(
        "core/workbench/kit/acting/confine.py",
        ATTACKS,
        (
            "return [*program, (_GIVE, 0, 0, _DENY)",
            "return [*program, (_GIVE, 0, 0, _ALLOW)",
            "all system calls are allowed",
        ),
        ("return [*rules, (_GIVE, 0, 0, _DENY)", "return [*rules, (_GIVE, 0, 0, _ALLOW)", "signals go by fcntl"),
        ("(_ANY_BIT, len(commands) + 1, 0, _O_ASYNC)", "(_ANY_BIT, 0, 0, _O_ASYNC)", "output sends signals"),
        ("return _libc.syscall(_RESTRICT, ruleset, 0) == 0", "return True", "Landlock is not applied"),
    ),
    *changes_of(
        "plugins/workbench_sandbox/linux.py",
        ATTACKS,
        ('"landlock": self.level != "limits-only",', '"landlock": False,', "files can be read"),
        ('"seccomp": self.level != "limits-only",', '"seccomp": False,', "processes can be started"),
    ),
    *changes_of(
        "plugins/workbench_sandbox/zygote.py",
        ENDS,
        ('config["memory"] * megabyte)', 'config["memory"] * megabyte * 64)', "memory is not bounded"),
    ),
    *changes_of(
        "plugins/workbench_sandbox/calls.py",
        ENDS,
        ('if self.printed_size > self.limits["output"]:', "if False:", "output is not bounded"),
        ('if end["late"]:', "if False:", "a timeout is a crash"),
        ("if code == -signal.SIGXCPU:", "if code < 0:", "a crash is a timeout"),
    ),
    *changes_of(
        "plugins/workbench_sandbox/calls.py",
        ANSWERS,
        (
            'body.get("value") if body["kind"] == "ok" else None',
            'body.get("value")',
            "a call that failed gives a value",
        ),
        ("parse_constant=_no_number, ", "", "NaN comes out of the sandbox"),
        ("parse_float=_finite", "parse_float=float", "infinity comes out of the sandbox"),
        ("for _ in range(DEEPEST + 1):", "for _ in range(DEEPEST + 100):", "answers may be nested deeper"),
        (
            'str(body.get("message", ""))[:LONGEST_MESSAGE]',
            'str(body.get("message", ""))',
            "a message may be of any length",
        ),
        ("line if type(line) is int else None", "line if isinstance(line, int) else None", "true is a line"),
        ('or body.get("kind") not in KINDS:', 'or "kind" not in body:', "a child may invent a kind of outcome"),
    ),
    *changes_of(
        "core/workbench/runtime/sandbox.py",
        OPENED,
        (
            "not in (LEVELS if choice.allow_limits_only else BOUNDARIES):",
            "not in LEVELS:",
            "code runs where nothing holds it",
        ),
        (
            "LEVELS.index(sandbox.level) < LEVELS.index(best.level):",
            "LEVELS.index(sandbox.level) > LEVELS.index(best.level):",
            "the weakest sandbox is taken",
        ),
    ),
]

CALLS: list[Mutant] = changes_of(
    "core/workbench/kit/answers/call_parser.py",
    "tests/kit/test_call_parser.py",
    (
        "text = split_thoughts(text)[1].replace(",
        "text = text.replace(",
        "a thought about a call is one",
    ),
    (
        "takewhile(lambda mark: mark.start() < end, marks.finditer(text))",
        "marks.finditer(text)",
        "an answer that quotes a call is one",
    ),
    (
        "return reading if known and _ENDS_LINE.match(text, reading.end) else NOTHING",
        "return reading if known else NOTHING",
        "a call in the middle of a sentence counts",
    ),
    ("if cut and first.calls and first.calls !=", "if False and first.calls !=", "a call that was cut is completed"),
    (
        "return replace(first, fault=_CUT) if cut and first.fault else first",
        "return first",
        "a cut call is told to be wrong JSON",
    ),
    (
        'runs = content and language in _CODE_FENCES and list(tools.get("python", ())) == ["code"]',
        "runs = True",
        "any code in an answer is run",
    ),
    (
        "        if reading.calls:\n            return reading\n",
        "        if reading.calls or reading.fault:\n            return reading\n",
        "a broken call counts before a readable one",
    ),
)

BODIES: list[Mutant] = changes_of(
    "core/workbench/kit/answers/call_bodies.py",
    "tests/kit/test_call_parser.py",
    (
        'return "tool" in body and isinstance(body.get("arguments"), dict)',
        "return True",
        "any JSON with a name is a call",
    ),
    ('("tool" in body and rest <= set(tools[name]))', "True", "a row about a tool is a call"),
    ("if beside and set(beside) <= own:", "if False:", "arguments beside the name are lost"),
    (
        'if len(given) > len(known) or "None" in named:',
        'if "None" in named:',
        "arguments too many are dropped",
    ),
    (
        "if isinstance(given, str) and isinstance(parsed := load_loose(given), dict):",
        "if isinstance(given, str) and isinstance(parsed := None, dict):",
        "arguments as a text are not read",
    ),
)
