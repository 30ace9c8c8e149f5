"""The timer of the benchmarks: turns, medians and ratios."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def timing(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import timing

    yield timing
    del sys.modules["timing"]


def test_contenders_take_turns_and_the_first_round_warms_up(timing):
    calls = []
    times = timing.interleaved(3, {name: lambda name=name: calls.append(name) for name in "abc"})
    assert "".join(calls) == "cba" + "abc" + "cba" + "abc"
    assert {name: len(took) for name, took in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_contender_may_time_itself(timing):
    took = iter([9.0, 1.0, 2.0, 3.0])
    times = timing.interleaved(3, {"a": lambda: next(took)}, seconds=lambda one: one())
    assert times == {"a": [1.0, 2.0, 3.0]}


def test_ratios_are_those_of_rounds(timing):
    times = {"slow": [2.0, 9.0, 4.0], "fast": [1.0, 3.0, 1.0]}
    assert timing.ratio(times, "slow", "fast") == (3.0, 2.5, 3.5)
    assert str(timing.ratio(times, "slow", "fast")) == "3 (2.5 to 3.5)"
    assert timing.ms(times, "slow") == 4000.0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_is_what_a_call_allocates():
    """In a process of its own: one that has freed memory before takes it from there."""
    code = "import timing; print(*timing.peak_mb(lambda: [bytes([k]) * 2**20 for k in range(100)]))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    before, peak = map(float, done.stdout.split())
    assert 90 < peak - before < 250
