"""The decision: T from known curves, its honesty about noise, and the answers that are no number."""

from __future__ import annotations

import pytest

from specops.sweep.arms import Visit, arm_playbook, order_visits
from specops.sweep.crossover import find_crossover, next_level
from specops.sweep.statistics import compare, estimate
from specops.sweep.verdict import compare_sweeps, decide, gains_of_gate
from tests.unit.sweep.made import LEVELS, make_sweep


def test_the_crossover_of_known_curves_is_found_and_its_interval_holds_it() -> None:
    held = 0
    for seed in range(10):
        found = decide(make_sweep(seed=seed, noise=0.02))
        assert found is not None
        assert found.kind == "at"
        assert found.bracket == (10, 30)
        assert found.high is not None
        assert 10 <= found.threshold < 30
        held += found.low <= 16 <= found.high
    assert held == 10, "nothing between 10 and 30 was measured, so the interval says no more than that"


def test_bisecting_comes_to_the_threshold() -> None:
    """As `tune` does it: the middle of the bracket is measured until nothing is between."""
    from tests.unit.sweep.made import gain, plain

    levels = {1, 10, 30, 100}
    while True:
        found = find_crossover({c: [plain(c)] for c in levels}, {c: [plain(c) * gain(c)] for c in levels})
        wanted = next_level(found)
        if wanted is None:
            break
        levels.add(wanted)
    assert found.threshold == 16 or found.bracket in ((15, 16), (16, 17))
    assert len(levels) <= 10


def test_no_crossover_and_never_worth_it_are_answers() -> None:
    always = decide(make_sweep(better=lambda c: 1.3))
    never = decide(make_sweep(better=lambda c: 0.7))
    assert always is not None
    assert never is not None
    assert (always.kind, always.threshold) == ("none up to", 250)
    assert always.sentence().startswith("no crossover up to C=250")
    assert (never.kind, never.threshold) == ("never", 0)
    assert never.sentence().startswith("speculation is never worth it from C=1 on")


def test_one_measurement_a_level_claims_no_certainty() -> None:
    found = decide(make_sweep(repeats=1))
    assert found is not None
    assert "cannot be said" in found.sentence()


def test_equal_curves_are_undecided() -> None:
    for seed in range(5):
        found = decide(make_sweep(better=lambda c: 1.0, noise=0.03, seed=seed))
        assert found is not None
        assert found.low <= 1
        assert found.high is None or found.high > 70
    found = decide(make_sweep(better=lambda c: 1.0, noise=0.03, seed=0))
    assert found is not None
    assert "undecided" in found.sentence()


def test_the_gain_is_put_together_from_the_two_states() -> None:
    sweep = make_sweep(noise=0.0)
    gains = {gain.at_once: gain for gain in gains_of_gate(sweep, 10)}
    assert set(gains) == set(LEVELS)
    assert gains[1].over_plain == pytest.approx(3000 / 31 * (1.8 / 1.05 - 1))
    assert gains[1].over_always_on == 0
    assert gains[250].over_plain == 0
    assert gains[250].over_always_on is not None
    assert gains[250].over_always_on > 0
    assert not gains[1].measured


def test_a_change_within_noise_is_none_and_a_real_one_is_named() -> None:
    same = compare_sweeps(make_sweep(seed=1, noise=0.03), make_sweep(seed=2, noise=0.03))
    assert sum(d.better is not None for d in same) <= len(same) * 0.15, "one in twenty is chance"
    slower = compare_sweeps(make_sweep(seed=1), make_sweep(seed=2, scale=0.8))
    assert all(d.better is False for d in slower if d.figure == "throughput")
    once = compare_sweeps(make_sweep(repeats=1), make_sweep(repeats=1, scale=0.5))
    assert all(d.better is None and "noise unknown" in d.words() for d in once)


def test_welch_against_a_worked_example() -> None:
    """By hand: standard error 0.4163, 2.80 degrees of freedom, whose quantile is 3.32."""
    change = compare([20.1, 19.8, 20.4], [21.5, 22.3, 21.0])
    assert change.real
    assert change.after.mean - change.before.mean == pytest.approx(1.5)
    assert change.low == pytest.approx(1.5 - 3.32 * 0.4163, abs=0.02)
    assert estimate([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.303 / 3**0.5, rel=1e-3)


def test_every_launch_on_the_way_back_is_measured_too() -> None:
    forward, back = order_visits(("gated", "always-on", "no-spec"), 3)
    assert [visit.arm for visit in (*forward, *back)] == [
        "gated",
        "always-on",
        "no-spec",
        "always-on",
        "gated",
    ]
    total: dict[str, int] = {}
    for visit in (*forward, *back):
        total[visit.arm] = total.get(visit.arm, 0) + visit.repeats
    assert set(total.values()) == {3}
    assert back[0] == Visit(arm="always-on", repeats=1, first_repeat=3)


def test_every_arm_admits_the_same_and_the_plain_one_is_unmodified() -> None:
    from specops.config.playbook import load_playbook

    book = load_playbook("eagle3-gated")
    arms = [arm_playbook(book, name, (1, 100)) for name in ("no-spec", "always-on", "gated")]
    assert {arm.server.max_running_requests for arm in arms} == {100}
    assert arms[0].draft is None
    assert arms[0].gate.kind == arms[1].gate.kind == "none"
    assert arms[2].gate == book.gate
