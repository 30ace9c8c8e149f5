"""Two hundred runs that are killed and given again: bit by bit those that nobody stopped."""

from __future__ import annotations

import os
import signal

import pytest

from benchmarks import kill_points
from isotrain.runs.files import read_result
from tests.hostile.harness import End, draw, ended, judged
from tests.hostile.test_folders import OF_RUNS, stop_after

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """`reference(configuration)`: the folder in which it has run whole."""
    root, known = tmp_path_factory.mktemp("kills"), set()

    def whole(configuration):
        if configuration not in known:
            kill_points.compare(configuration, None, 0, root)
            known.add(configuration)
        return root

    return whole


@pytest.mark.parametrize("number", range(200))
def test_a_killed_run(number, reference, record_property):
    one = draw("kill", number)
    configuration = list(kill_points.CONFIGURATIONS)[number % len(kill_points.CONFIGURATIONS)]
    root = reference(configuration)
    total = kill_points.n_events(configuration, root)
    late = number // 5 % 4 > 0  # three of four behind the first checkpoint
    event = one.randint(total // 3 if late else 1, total)
    found = kill_points.compare(configuration, event, signal.SIGKILL, root)
    place = root / configuration.split()[0].rstrip(",") / f"{event}-{signal.SIGKILL}"
    (result,) = map(read_result, place.glob("*/*/"))
    if (step := result["resumed_after_step"]) is not None:
        record_property("hostile", "resumed")
    what = f"{configuration} killed at event {event} of {total}, resumed after step {step}"
    judged(record_property, what, End("ran", "", 0), "; ".join(found))
    assert not late or step is not None, what


@pytest.mark.parametrize("event", [1, 7, 20, 31])
@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c(event, n, tmp_path, record_property):
    (place := tmp_path / "place").mkdir()

    def interrupt():
        for _ in range(n):
            os.kill(os.getpid(), signal.SIGINT)

    overrides = [*OF_RUNS, "output_dir=out"]
    end = ended(lambda: stop_after(overrides, event, react=interrupt), place)
    if end.code == 130 and "Traceback" not in end.text:
        end = end._replace(kind="refused")
    judged(record_property, f"{n} times Ctrl-C at event {event}; {overrides}", end, "went on")
