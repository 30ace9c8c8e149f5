"""Damaged checkpoints and run files, full disks, folders that are taken away, what comes after."""

import errno
import os
import shutil
import signal
import subprocess
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from isotrain import cli
from tests.hostile.harness import TINY, draw, ended, judged
from tests.stopped_runs import save_weights
from tools import kill_points

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
READERS = (["evaluate"], ["export", "--format", "transformers"], ["init_from"])
SIZES = ("4k", "16k", "64k", "150k", "300k", "600k", "900k", "1500k", "2m", "3500k")


def stop_after(overrides, event, number=signal.SIGKILL, react=None, of=None):
    """Train until an event of the run (`of` these names); there kill it, or call `react`."""
    events = count(1)

    def happen(name):
        if (of is None or name in of) and next(events) == event:
            react() if react else signal.raise_signal(number)

    kill_points.on_events(happen)
    return cli.main(["train", *overrides])


def other_numbers(end, one, two):
    """In words; empty where they are equal, or where the run has not ended."""
    if end.kind != "ran":
        return ""
    whole, *found = (*one.glob("*/*/"), *two.glob("*/*/"))
    return "; ".join(kill_points.differences(whole, found[0])) if found else "no folder of it"


def _flipped(whole, one):
    content = bytearray(whole or b"0")
    bit = one.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    return content


OTHER_BYTES = {
    "flip": _flipped,
    "cut": lambda whole, one: whole[: one.randrange(len(whole) + 1)],
    "halves swapped": lambda whole, one: whole[len(whole) // 2 :] + whole[: len(whole) // 2],
    "longer": lambda whole, one: whole + one.randbytes(50),
    "empty": lambda whole, one: b"",
    "zeros": lambda whole, one: bytes(len(whole)),
    "noise": lambda whole, one: one.randbytes(len(whole)),
}


OTHER_STATES = ["key", "shape", "emptied"]


def harm(path, one, how=None):
    """Damage a file, or put one where there is a folder or nothing; what was done."""
    if not path.is_file():
        shutil.rmtree(path, ignore_errors=True)
        path.write_bytes(b"mine")
        return f"{path.name}: a file"
    hows = [*OTHER_BYTES, "flip", "flip", "gone", "folder", "loop"]
    hows += OTHER_STATES if path.name == "weights.safetensors" else []
    how = how or one.choice(hows)
    if how in OTHER_BYTES:
        path.write_bytes(OTHER_BYTES[how](path.read_bytes(), one))
    elif how in OTHER_STATES:
        how += f" {_other_state(how, path, one)}"
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        if how == "loop":
            path.symlink_to(path.name)
    return f"{path.name}: {how}"


def _other_state(how, path, one):
    """Weights of a run with other content and the digest of that, which its record has, too.

    Those of the encoder, which every reader needs.
    """
    weights, name = load_file(path), "all"
    names = [key for key in weights if key.startswith("model.encoder.")]
    if how == "key":
        name = one.choice(names)
        del weights[name]
    elif how == "emptied":
        weights = {}
    else:
        name = one.choice([key for key in names if weights[key].is_floating_point()])
        weights[name] = weights[name][..., None]
    save_weights(weights, path.parent)
    return name


@pytest.mark.parametrize("number", range(80))
def test_a_damaged_stopped_run(number, hostile_runs, tmp_path, given):
    """Once in four two files; rejected, or to the same end."""
    one = draw("stopped", number)
    shutil.copytree(hostile_runs / "stopped", tmp_path / "place" / "out")
    (run,) = tmp_path.glob("place/out/*/*/")
    whats = []
    for pattern in one.sample(STOPPED, 2 if one.random() < 0.25 else 1):
        files = sorted(run.glob(pattern)) or [run / pattern]
        if files[0].parent.is_dir():
            whats.append(harm(one.choice(files), one))
    given(TRAIN, "; ".join(whats))


@pytest.mark.parametrize("number", range(40))
def test_damaged_weights(number, hostile_runs, tmp_path, record_property):
    """Of `weights.safetensors` nothing but the whole is scored, exported or started from."""
    shutil.copytree(hostile_runs / "whole", tmp_path / "place" / "out")
    (file,) = tmp_path.glob("place/out/*/*/weights.safetensors")
    what = harm(file, draw("weights", number))
    reader, *more = READERS[number % 3]
    command = [reader, str(file.parent), *more]
    if reader == "init_from":
        command = [*TRAIN, "output_dir=new", f"init_from={file.parent}"]
    end = ended(command, tmp_path / "place")
    judged(record_property, f"{what}; {command}", end, "goes on with weights not of the run")


@pytest.fixture
def given(hostile_runs, tmp_path, record_property):
    """`given(command, what)`: its end, and whether the numbers are those of the unharmed run."""
    place = tmp_path / "place"
    place.mkdir(exist_ok=True)

    def run(command, what, **limits):
        end = ended(command, place, **limits)
        other = other_numbers(end, hostile_runs / "whole", place / "out")
        return judged(record_property, what, end, other)

    return run


@pytest.fixture
def disk(tmp_path):
    """`disk(size)`: a tmpfs of that size at `place/out`; False where none can be mounted."""
    out = tmp_path / "place" / "out"

    def sized(size, *options):
        out.mkdir(parents=True, exist_ok=True)
        options = ",".join([f"size={size}", *options])
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(out)]
        return subprocess.run(command, capture_output=True).returncode == 0

    yield sized
    subprocess.run(["umount", str(out)], capture_output=True)


@pytest.mark.parametrize("size", [*SIZES, *(2**k for k in range(9, 18))])
def test_too_little_room(size, disk, given):
    """On a disk of a size, or with a limit on the size of every file, as a quota has it."""
    if (is_disk := isinstance(size, str)) and not disk(size):
        pytest.skip("a tmpfs may not be mounted here")
    end = given(TRAIN, f"room of {size}", file_size=None if is_disk else size)
    assert end.kind == "ran" or (end.code == 1 and "make room" in end.text), end.text
    if is_disk:
        disk("64m", "remount")
    assert given(TRAIN, f"room of {size}, then enough").kind == "ran"


def take_away(what, number):
    """Delete what a run writes into, or put a folder in its place."""
    (run,) = (path.parent for path in Path("out").rglob(".lock"))
    if what in ("output_dir", "folder"):
        return shutil.rmtree("out" if what == "output_dir" else run)
    (run / what).unlink(missing_ok=True)
    if number % 2:
        (run / what).mkdir()


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize(
    "what", ["output_dir", "folder", "metrics.jsonl", "resume.ckpt", "best.ckpt"]
)
def test_what_is_taken_away(what, number, given, tmp_path):
    """While it runs; the same command then comes to the same end.

    A folder in place of a file is its owner's to move away: until then the error names it.
    """
    event = draw(what, number).randint(1, 120)
    command = f"{what} taken away at event {event}"
    react = partial(take_away, what, number)
    given(lambda: stop_after(TRAIN[1:], event, react=react), command)
    end = given(TRAIN, f"{command}, and given again")
    if end.kind == "rejected":
        (folder,) = (tmp_path / "place" / "out").glob(f"*/*/{what}")
        assert f"{folder.relative_to(tmp_path / 'place')}: Is a directory" in end.text
        folder.rmdir()
        end = given(TRAIN, f"{command}, moved away, and given again")
    assert end.kind == "ran"


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "ESTALE", "EROFS"])
def test_storage_that_fails_once(code, number, given):
    """At one call that changes a file."""
    at = draw(code, number).randint(1, 60)

    def fail():
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    what = f"{code} at change {at} of a file"
    given(lambda: stop_after(TRAIN[1:], at, react=fail, of=kill_points.FILES), what)
    assert given(TRAIN, f"{what}, and given again").kind == "ran"


TOO_LARGE = "RuntimeError: value cannot be converted to type float without overflow"
OF_TORCH = {  # override: what torch says of it
    "optimizer.lr=1e300": TOO_LARGE,
    "optimizer.lr=3e38": TOO_LARGE,
    "training.head_lr_factor=1e300": TOO_LARGE,
    "optimizer.eps=-1": "ValueError: Invalid epsilon value: -1",
    "optimizer.betas=[0.9,1.0]": "ValueError: Invalid beta parameter at index 1: 1.0",
}


@pytest.mark.parametrize(
    "override",
    [
        *OF_TORCH,
        *("optimizer.weight_decay=1e300", "optimizer.weight_decay=1e30"),
        *("optimizer.lr=1e30", "optimizer.lr=inf", "optimizer.lr=nan"),
        *("training.head_lr_factor=inf", "optimizer.eps=nan", "optimizer.eps=0"),
        *("+optimizer.maximize=true", "trainer.precision=16-true", "trainer.precision=bf16-true"),
    ],
)
@pytest.mark.parametrize("steps", [1, 12])
def test_weights_that_are_not_finite(override, steps, tmp_path, record_property):
    """Rejected (by torch in its own words), stopped, or finished with weights that are finite."""
    (place := tmp_path / "place").mkdir()
    more = [override, f"trainer.max_steps={steps}"]
    end = ended([*TRAIN, *more], place)
    bad = [
        name
        for file in place.glob("out/*/*/*.ckpt")
        for name, x in torch.load(file, weights_only=True)["state_dict"].items()
        if x.is_floating_point() and "extra" not in name and not torch.isfinite(x).all()
    ]
    bad += [
        name
        for file in place.glob("out/*/*/weights.safetensors")
        for name, x in load_file(file).items()
        if x.is_floating_point() and "extra" not in name and not torch.isfinite(x).all()
    ]
    of_torch = OF_TORCH.get(override, "")
    judged(record_property, f"{more}", end, f"{bad} not finite" if bad else "", of_torch)
    assert not bad, bad
