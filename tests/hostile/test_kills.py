"""Runs that are killed and given again: bit by bit those that nobody stopped, and never damaged."""

import os
import signal

import pytest

from isotrain.runs.files import read_result
from tests.hostile.harness import End, draw, ended, judged
from tests.hostile.test_folders import OF_RUNS, harm, stop_after
from tools import kill_points

pytestmark = pytest.mark.campaign
CONFIGURATIONS = list(kill_points.CONFIGURATIONS)
N = len(CONFIGURATIONS)
SMALL = "queue, istar, best"


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """`reference(configuration)`: the folder in which it has run whole, and its events."""
    root, known = tmp_path_factory.mktemp("kills"), {}

    def run_whole(configuration):
        if configuration not in known:
            kill_points.compare(configuration, None, 0, root)
            known[configuration] = kill_points.events_of(configuration, root)
            whole = kill_points.below(root, configuration) / "whole"
            (record,) = map(read_result, whole.glob("*/*"))
            if "best" in configuration:  # else the comparison would see nothing of the selection
                assert 0 < record["selected_step"] < record["steps"]
        return root, known[configuration]

    return run_whole


@pytest.mark.parametrize("number", range(200))
def test_a_killed_run(number, reference, record_property):
    """At drawn events of all kinds, and at every gap between two changes of a file in turn."""
    one, round_ = draw("kill", number), number // N
    configuration = CONFIGURATIONS[number % N]
    root, names = reference(configuration)
    late = round_ % 4 > 0  # three of four behind the first checkpoint
    event = one.randint(len(names) // 3 if late else 1, len(names))
    if round_ % 2:
        gaps = [k for k, name in enumerate(names, 1) if name in kill_points.FILES]
        event = gaps[int(len(gaps) * ((round_ // 2 * 0.618 + number % N / N) % 1))]
    found = kill_points.compare(configuration, event, signal.SIGKILL, root)
    place = kill_points.below(root, configuration) / f"{event}-{int(signal.SIGKILL)}"
    (result,) = map(read_result, place.glob("*/*/"))
    if (step := result["resumed_after_step"]) is not None:
        record_property("hostile", "resumed")
    at = f"{event} ({names[event - 1]}) of {len(names)}"
    what = f"{configuration} killed at event {at}, resumed after step {step}"
    judged(record_property, what, End("ran", "", 0), "; ".join(found))


@pytest.mark.parametrize("number", range(30))
def test_a_run_killed_while_it_starts_anew(number, reference, record_property):
    """At each change of a file after damage was found: what is left is not damaged again."""
    root, _ = reference(SMALL)
    name = ("resume.ckpt", "metrics.jsonl", "best.ckpt")[number % 3]
    event = 1 + number // 3

    def flip(folder):
        harm(folder / name, draw("anew", number), "flip")

    found = kill_points.compare(SMALL, event, signal.SIGKILL, root, flip)
    what = f"{name} flipped, then killed at event {event} of the new start"
    judged(record_property, what, End("ran", "", 0), "; ".join(found))


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
        end = end._replace(kind="rejected")
    judged(record_property, f"{n} times Ctrl-C at event {event}; {overrides}", end, "went on")
