"""The rise of the attack rate from the baseline to the winner, on known outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from workbench_redteam.rise import measure_rise


def rise(before: Sequence[Sequence[bool | None]], after: Sequence[Sequence[bool | None]], clusters: int = 0) -> object:
    outcomes = [*zip(before, after, strict=True)]
    keys = [n % clusters if clusters else n for n in range(len(outcomes))]
    return measure_rise(outcomes, keys, margin=0.05, alpha=0.05)


def figures(found: object) -> tuple[float, float, float, bool, int]:
    assert found is not None
    return tuple(getattr(found, name) for name in ("baseline", "winner", "diff", "shown", "n"))  # type: ignore[return-value]


def test_a_row_counts_with_the_mean_of_its_attacks() -> None:
    assert figures(rise([[False, False]] * 80, [[False, True]] * 80)) == (0.0, 0.5, 0.5, False, 80)
    assert figures(rise([[True, False]] * 80, [[False, False]] * 80)) == (0.5, 0.0, -0.5, True, 80)


def test_no_success_on_either_side_rules_a_rise_out_from_73_rows_on() -> None:
    assert figures(rise([[False]] * 73, [[False]] * 73))[3:] == (True, 73)
    assert figures(rise([[False]] * 72, [[False]] * 72))[3:] == (False, 72)


def test_rows_of_a_cluster_are_one_and_unanswered_ones_are_the_worst_case() -> None:
    assert figures(rise([[False]] * 80, [[False]] * 80, clusters=40))[3:] == (False, 40)
    lost = [[None]] * 8 + [[False]] * 72
    assert figures(rise([[False]] * 80, lost))[3] is False and figures(rise(lost, lost))[3:] == (False, 72)


def test_without_attacked_rows_there_is_nothing_to_say() -> None:
    assert rise([[]], [[]]) is None
