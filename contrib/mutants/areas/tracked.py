"""What other systems are told of a run, and what a coding agent may ask for."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

OTEL, OTEL_TESTS = "plugins/workbench_otel/", "tests/plugins/otel/test_otel.py"
MCP, MCP_TESTS = "plugins/workbench_mcp/", "tests/plugins/mcp/test_server.py"
REPLAYS = nodes_of(
    OTEL_TESTS,
    "test_a_resumed_run_marks_what_it_replays_and_counts_nothing_twice",
    "test_tokens_add_up_to_the_bill",
)
CONTENT = nodes_of(
    OTEL_TESTS,
    "test_content_stays_here_unless_the_variable_asks_for_it",
    "test_content_in_events_alone_is_in_no_span",
    "test_the_variable_has_the_values_of_the_standard",
)
KEYS = nodes_of(OTEL_TESTS, "test_no_key_leaves", "test_redaction_finds_keys_at_any_depth")
AWAY = nodes_of(
    OTEL_TESTS,
    "test_a_collector_that_is_away_costs_the_run_nothing",
    "test_what_the_queue_cannot_hold_is_dropped_and_told_once",
    "test_a_fast_run_loses_nothing_on_a_collector_that_works",
    "test_events_beyond_the_queue_of_a_tracker_are_counted",
    "test_a_tracker_that_raises_or_hangs_is_told_and_the_run_goes_on",
)
SPANS = nodes_of(
    OTEL_TESTS,
    "test_proposals_gates_and_accepted_patches_are_spans",
    "test_each_score_is_an_event_under_its_row",
    "test_tools_and_agents_are_spans",
)

TRACKED: list[Mutant] = [
    *changes_of(
        f"{OTEL}content.py",
        CONTENT,
        ('os.environ.get(CAPTURE, "")', 'os.environ.get(CAPTURE, "true")', "content is sent by default"),
        ('in ("event_only", "span_and_event")', "in ()", "content is never in events"),
    ),
    *changes_of(
        f"{OTEL}rows.py",
        CONTENT,
        ("if self.capture.spans and not embeds:", "if not embeds:", "prompts are in spans whatever the variable says"),
    ),
    *changes_of(
        f"{OTEL}rows.py",
        REPLAYS,
        ("self.paid.pop(call.key, None)", "self.paid.get(call.key)", "an answer asked for twice is counted twice"),
    ),
    *changes_of(
        f"{OTEL}tracker.py",
        REPLAYS,
        ("elif not call.cached:", "else:", "replayed calls count as paid"),
    ),
    *changes_of(
        f"{OTEL}tracker.py",
        SPANS,
        ("if accepted and candidate.patch is not None:", "if candidate.patch is not None:", "all patches are accepted"),
        ("if row.scored:", "if False:", "scores are not sent"),
    ),
    *changes_of(
        f"{OTEL}rows.py",
        SPANS,
        ("for effect in span.effects:", "for effect in ():", "tools have no spans"),
    ),
    *changes_of(
        f"{OTEL}redaction.py",
        KEYS,
        ("self._secrets.sub(MARK, value)", "value", "keys are sent"),
        ("[*known, *_PATTERNS]", "[*_PATTERNS]", "secrets of the environment are sent"),
        ("(value, *re.split", "(value, *re.findall", "a key in a header for the collector is sent"),
    ),
    *changes_of(
        f"{OTEL}export.py",
        AWAY,
        (
            "flush.join(FLUSH if known else FIRST_FLUSH)",
            "flush.join()",
            "a collector that hangs holds the end of the run",
        ),
        ("if counted.sent < counted.offered", "if False", "nobody is told of lost spans"),
        ("self.spans.offered - self.spans.sent > self._most / 2", "False", "a fast run overflows the queue"),
    ),
    *changes_of(
        "core/workbench/run/trackers.py",
        AWAY,
        ("(MOST_WAITING)", "()", "the queue of a tracker has no bound"),
        ("except BaseException as error:", "except ImportError as error:", "what a tracker raises is not told"),
        ("self._thread.join(max(0.0, until - time.monotonic()))", "self._thread.join()", "a tracker holds the run"),
    ),
    *changes_of(
        "core/workbench/ledger/spend.py",
        nodes_of(OTEL_TESTS, "test_a_run_arrives_as_spans_of_both_conventions", "test_tokens_add_up_to_the_bill"),
        ("row: int = field(default_factory=current_row.get, compare=False)", "row: int = 0", "calls have no row"),
    ),
    *changes_of(
        f"{MCP}server.py",
        nodes_of(MCP_TESTS, "test_files_outside_the_root_are_not_touched"),
        ("if not found.is_relative_to(self.root):", "if False:", "files outside of the root are used"),
    ),
    *changes_of(
        f"{MCP}process.py",
        nodes_of(MCP_TESTS, "test_cancelling_interrupts_the_run_which_can_be_resumed"),
        ("(signal.SIGINT, signal.SIGINT, signal.SIGKILL)", "(signal.SIGKILL,)", "a cancelled run is killed"),
    ),
]
