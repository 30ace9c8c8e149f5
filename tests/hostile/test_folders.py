"""Damaged checkpoints and run files, full disks, folders that are taken away, what comes after."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from itertools import count
from pathlib import Path

import pytest
import torch

from benchmarks import kill_points
from isotrain import cli
from isotrain.model.checkpoint import save_checkpoint
from isotrain.runs.files import read_records, read_result, untimed
from tests.hostile.harness import TINY, draw, ended, judged

pytestmark = pytest.mark.campaign
OF_RUNS = (
    *("task=wic", *TINY, "isotropy=cluster_pca", "isotropy.n_clusters=2", "isotropy.stats=queue"),
    *("objective=[istar]", "data.n_train=64", "trainer.max_steps=12", "checkpoint.every_steps=3"),
    *("training.select=best", "trainer.val_check_interval=4", "trainer.log_every_n_steps=1"),
    *("monitor.map_rows=8", "trainer.max_epochs=2", "cache_dir=null", "optimizer.lr=1e-3"),
)
TRAIN = ["train", *OF_RUNS, "output_dir=out"]
STOPPED = ("resume.ckpt",) * 6 + ("metrics.jsonl",) * 3 + ("best.ckpt",) * 3
STOPPED += ("resume.json", "config.yaml", "result.json", "predictions", "predictions/*")
STOPPED += ("snapshots", "snapshots/*", ".lock", "resume.ckpt.part", "report.html")
READERS = (["evaluate", "--json"], ["export", "--format", "transformers"], ["init_from"])
SIZES = ("4k", "16k", "64k", "150k", "300k", "600k", "900k", "1500k", "2m", "3500k")


def stop_after(overrides, event, number=signal.SIGKILL, react=None):
    """Train until an event of the run; there it is killed, or `react` is called."""
    events = count(1)

    def happen(_):
        if next(events) == event:
            react() if react else signal.raise_signal(number)

    kill_points.on_events(happen)
    return cli.main(["train", *overrides])


def numbers_of(folder):
    """What a run came to: its records, scores and weights."""
    (run,) = (f.parent for f in folder.glob("*/*/last.ckpt"))
    weights = torch.load(run / "last.ckpt", weights_only=True)["state_dict"]
    records = [untimed(row) for row in read_records(run / "metrics.jsonl")]
    scores = read_result(run)["scores"]
    return repr(records), repr(scores), {k: v.tolist() for k, v in weights.items()}


def other_numbers(end, one, two):
    """In words; empty where they are equal, or where the run has not ended."""
    if end.kind != "ran":
        return ""
    try:
        pairs = zip(("records", "scores", "weights"), numbers_of(one), numbers_of(two), strict=True)
        return "; ".join(f"other {name} than unharmed" for name, a, b in pairs if a != b)
    except (ValueError, KeyError) as error:
        return f"no record of it: {error!r}"


def _flip(path, one):
    content = bytearray(path.read_bytes() or b"\0")
    bit = one.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return bit


def _cut(path, one):
    os.truncate(path, n := one.randrange(path.stat().st_size + 1))
    return n


def _swap(path, one):
    """The two halves change places: the bytes are all there."""
    content = path.read_bytes()
    path.write_bytes(content[len(content) // 2 :] + content[: len(content) // 2])


def _other_kind(path, one):
    path.unlink()
    path.mkdir()
    (path / "mine.txt").write_text("mine")


def _loop(path, one):
    path.unlink()
    path.symlink_to(path.name)


HARMS = {
    "flip": _flip,
    "cut": _cut,
    "swap": _swap,
    "folder": _other_kind,
    "loop": _loop,
    "longer": lambda path, one: path.write_bytes(path.read_bytes() + one.randbytes(50)),
    "empty": lambda path, one: path.write_bytes(b""),
    "zeros": lambda path, one: path.write_bytes(bytes(path.stat().st_size)),
    "noise": lambda path, one: path.write_bytes(one.randbytes(path.stat().st_size)),
    "gone": lambda path, one: path.unlink(),
}


def _changed_state(how, path, one):
    """A checkpoint with other content, which torch has written."""
    state = torch.load(path, weights_only=True)
    node, name = state, one.choice(list(state))
    weights = state["state_dict"]
    if how == "key":
        while isinstance(node[name], dict) and node[name] and one.random() < 0.7:
            node, name = node[name], one.choice(list(node[name]))
        del node[name]
    elif how == "emptied" and state.get("optimizer_states"):
        state[name := "optimizer_states"][0]["state"] = {}
    else:
        name = one.choice([key for key, x in weights.items() if x.is_floating_point()])
        weights[name] = weights[name][..., None] if how == "shape" else weights[name] + 1e-3
    torch.save(state, path)
    return name


def harm(path, one):
    """Damage a file, or put one where there is a folder or nothing; what was done."""
    if not path.is_file():
        shutil.rmtree(path, ignore_errors=True)
        path.write_bytes(b"mine")
        return f"{path.name}: a file"
    hows = [*HARMS, "flip", "flip", *("key", "shape", "emptied", "moved")][
        : None if path.suffix == ".ckpt" else -4
    ]
    how = one.choice(hows)
    did = HARMS[how](path, one) if how in HARMS else _changed_state(how, path, one)
    return f"{path.name}: {how} {'' if did is None else did}"


@pytest.mark.parametrize("number", range(80))
def test_a_damaged_stopped_run(number, hostile_runs, tmp_path, record_property):
    """Once in four two files; refused, or to the same end."""
    one, place = draw("stopped", number), tmp_path / "place"
    shutil.copytree(hostile_runs / "stopped", place / "out")
    (run,) = place.glob("out/*/*/")
    whats = []
    for pattern in one.sample(STOPPED, 2 if one.random() < 0.25 else 1):
        files = sorted(run.glob(pattern)) or [run / pattern]
        if files[0].parent.is_dir():
            whats.append(harm(one.choice(files), one))
    end = ended(TRAIN, place)
    other = other_numbers(end, hostile_runs / "whole", place / "out")
    judged(record_property, f"{'; '.join(whats)}; {' '.join(TRAIN)}", end, other)


@pytest.fixture(scope="module")
def evaluated(hostile_runs):
    """What `evaluate` says of the unharmed run."""
    (run,) = hostile_runs.glob("whole/*/*/")
    return json.loads(ended(["evaluate", str(run), "--json"], hostile_runs).text)["scores"]


@pytest.mark.parametrize("number", range(40))
def test_damaged_weights(number, hostile_runs, evaluated, tmp_path, record_property):
    """Of `last.ckpt` nothing but the whole is scored, exported or started from."""
    one, place = draw("weights", number), tmp_path / "place"
    shutil.copytree(hostile_runs / "whole", place / "out")
    (run,) = place.glob("out/*/*/")
    what = harm(run / "last.ckpt", one)
    reader, *more = READERS[number % 3]
    command = [reader, str(run), *more]
    if reader == "init_from":
        command = [*TRAIN, "output_dir=new", "trainer.max_steps=1", f"init_from={run}"]
    end = ended(command, place)
    judged(record_property, f"{what}; {command}", end, "goes on with weights not of the run")


@pytest.mark.parametrize("number", range(6))
def test_a_checkpoint_of_other_code(number, hostile_runs, tmp_path, record_property):
    """Whole by its digest, but of a model with other shapes or keys."""
    one, place = draw("code", number), tmp_path / "place"
    shutil.copytree(hostile_runs / "stopped", place / "out")
    (file,) = place.glob("out/*/*/resume.ckpt")
    state = torch.load(file, weights_only=True)
    name = one.choice([k for k, x in state["state_dict"].items() if x.is_floating_point()])
    tensor = state["state_dict"].pop(name)
    if number % 2:
        state["state_dict"][name] = tensor[..., None]
    save_checkpoint(state, file)
    end = ended(TRAIN, place)
    other = other_numbers(end, hostile_runs / "whole", place / "out")
    judged(record_property, f"{name} {'of another shape' if number % 2 else 'lost'}", end, other)


@pytest.fixture
def disk(tmp_path):
    """`disk(size)`: a tmpfs of that size at `place/out`; False where none can be mounted."""
    out = tmp_path / "place" / "out"
    out.mkdir(parents=True)

    def sized(size, *options):
        options = ",".join([f"size={size}", *options])
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(out)]
        return subprocess.run(command, capture_output=True).returncode == 0

    yield sized
    subprocess.run(["umount", str(out)], capture_output=True)


@pytest.mark.parametrize("size", SIZES)
def test_a_full_disk(size, disk, hostile_runs, tmp_path, record_property):
    if not disk(size):
        pytest.skip("a tmpfs may not be mounted here")
    place = tmp_path / "place"
    end = ended(TRAIN, place)
    judged(record_property, f"full at {size}", end)
    assert end.kind == "ran" or (end.code == 1 and "make room" in end.text), end.text
    disk("64m", "remount")
    end = ended(TRAIN, place)
    other = other_numbers(end, hostile_runs / "whole", place / "out")
    judged(record_property, f"full at {size}, then room", end, other)
    assert end.kind == "ran", end.text


@pytest.mark.parametrize("size", [2**k for k in range(9, 18)])
def test_files_of_a_limited_size(size, hostile_runs, tmp_path, record_property):
    """As with a quota, every file has less room than it needs."""
    (place := tmp_path / "place").mkdir()
    judged(record_property, f"files of {size}", ended(TRAIN, place, file_size=size))
    end = ended(TRAIN, place)
    other = other_numbers(end, hostile_runs / "whole", place / "out")
    judged(record_property, f"files of {size}, then any", end, other)
    assert end.kind == "ran", end.text


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("what", ["output_dir", "folder", "metrics.jsonl", "resume.ckpt", "best"])
def test_what_is_taken_away(what, number, hostile_runs, tmp_path, record_property):
    """While it runs; the same command then comes to the same end, or says what is in the way."""
    one, place = draw(what, number), tmp_path / "place"
    place.mkdir()

    def take_away():
        (run,) = (path.parent for path in Path("out").rglob(".lock"))
        if what in ("output_dir", "folder"):
            return shutil.rmtree("out" if what == "output_dir" else run)
        file = run / ("best.ckpt" if what == "best" else what)
        file.unlink(missing_ok=True)
        if number % 2:
            file.mkdir()

    event = one.randint(1, 120)
    command = f"{what} taken away at event {event}"
    end = ended(lambda: stop_after([*OF_RUNS, "output_dir=out"], event, react=take_away), place)
    judged(record_property, command, end, other_numbers(end, hostile_runs / "whole", place / "out"))
    again = ended(TRAIN, place)
    other = other_numbers(again, hostile_runs / "whole", place / "out")
    judged(record_property, f"{command}, and given again", again, other)
    assert again.kind == "ran", again.text


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "ESTALE", "EROFS"])
def test_storage_that_fails_once(code, number, hostile_runs, tmp_path, record_property):
    """At one call that changes a file."""
    one = draw(code, number)
    (place := tmp_path / "place").mkdir()
    calls, at = count(1), one.randint(1, 60)

    def train():
        def fail(name):
            if name in kill_points.FILES and next(calls) == at:
                raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

        kill_points.on_events(fail)
        return cli.main(TRAIN)

    what = f"{code} at change {at} of a file"
    end = ended(train, place)
    judged(record_property, what, end, other_numbers(end, hostile_runs / "whole", place / "out"))
    again = ended(TRAIN, place)
    other = other_numbers(again, hostile_runs / "whole", place / "out")
    judged(record_property, f"{what}, and given again", again, other)
    assert again.kind == "ran", again.text


@pytest.mark.parametrize(
    "override",
    [
        *("optimizer.lr=1e300", "optimizer.weight_decay=1e300", "optimizer.weight_decay=1e30"),
        *("optimizer.lr=1e30", "optimizer.lr=3e38", "optimizer.lr=inf", "optimizer.lr=nan"),
        *("training.head_lr_factor=1e300", "training.head_lr_factor=inf"),
        *("optimizer.eps=nan", "optimizer.eps=0", "optimizer.eps=-1", "optimizer.betas=[0.9,1.0]"),
        *("+optimizer.maximize=true", "trainer.precision=16-true", "trainer.precision=bf16-true"),
    ],
)
@pytest.mark.parametrize("steps", [1, 12])
def test_weights_that_are_not_finite(override, steps, tmp_path, record_property):
    """Refused, stopped, or finished with weights that are all finite."""
    (place := tmp_path / "place").mkdir()
    more = [override, f"trainer.max_steps={steps}"]
    end = ended([*TRAIN, *more], place)
    bad = [
        name
        for file in place.glob("out/*/*/*.ckpt")
        for name, x in torch.load(file, weights_only=True)["state_dict"].items()
        if x.is_floating_point() and "extra" not in name and not torch.isfinite(x).all()
    ]
    judged(record_property, f"{more}", end, f"{bad} not finite" if bad else "")
    assert not bad, bad
