"""Damaged files of a run, full disks, folders that are taken away, and what comes after."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks.kill_points import _on_events
from isotrain import cli
from isotrain.runs.files import read_records, read_result, untimed
from tests.hostile.harness import TINY, draw, ended, judged

pytestmark = pytest.mark.campaign
OF_RUNS = (
    *("task=wic", *TINY, "isotropy=cluster_pca", "isotropy.n_clusters=2", "isotropy.stats=queue"),
    *("objective=[istar]", "data.n_train=64", "trainer.max_steps=12", "checkpoint.every_steps=3"),
    *("training.select=best", "trainer.val_check_interval=4", "trainer.log_every_n_steps=1"),
    *("monitor.map_rows=8", "trainer.max_epochs=2", "cache_dir=null", "optimizer.lr=1e-3"),
)
TRAIN = ("train", *OF_RUNS)
STOPPED = ("resume.ckpt",) * 5 + ("metrics.jsonl",) * 3 + ("best.ckpt",) * 2
STOPPED += ("resume.json", "config.yaml", "result.json", "predictions/*", "snapshots/*", ".lock")
WHOLE = ("result.json",) * 4 + ("metrics.jsonl",) * 2 + ("last.ckpt",) * 3
WHOLE += ("config.yaml", "predictions/*", "snapshots/*")
READERS = ("report", "collect", "status", "export", "evaluate", "train")
FOREIGN = (None, [], {}, "x", "<b>\x1b[31m", -1, 10**400, True, [[]], {"a": 1}, "\ud800", 1e308)
SIZES = ("4k", "16k", "64k", "150k", "300k", "600k", "900k", "1500k", "2m", "3500k")


def stop_after(overrides, event, number=signal.SIGKILL, react=None):
    """Train until an event of the run; there it is killed, or `react` is called."""
    seen = []

    def happen(_):
        seen.append(1)
        if len(seen) == event:
            react() if react else signal.raise_signal(number)

    _on_events(happen)
    return cli.main(["train", *overrides])


def numbers_of(folder):
    """What a run came to: its records, scores and weights."""
    (result,) = (r for r in map(read_result, folder.glob("*/*")) if r.get("status") == "finished")
    (run,) = (f.parent for f in folder.glob("*/*/last.ckpt"))
    weights = torch.load(run / "last.ckpt", weights_only=True)["state_dict"]
    records = [untimed(row) for row in read_records(run / "metrics.jsonl")]
    return repr(records), repr(result["scores"]), {k: v.tolist() for k, v in weights.items()}


def other_numbers(one, two):
    """In words; empty where they are equal."""
    pairs = zip(("records", "scores", "weights"), numbers_of(one), numbers_of(two), strict=True)
    return "; ".join(f"other {name} than unharmed" for name, a, b in pairs if a != b)


def harm(path, one):
    """Damage a file; what was done."""
    whole = path.read_bytes()
    hows = ["flip", "flip", "flip", "cut", "empty", "zeros", "folder", "gone", "noise"]
    if path.suffix in (".json", ".jsonl"):
        hows += ["foreign", "foreign", "lost", "root"]
    if path.suffix == ".ckpt":
        hows += ["key", "shape", "emptied", "moved"]
    how = one.choice(hows)
    if how == "flip" and whole:
        bit = one.randrange(8 * len(whole))
        path.write_bytes(
            whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :]
        )
        return f"bit {bit} of {path.name} flipped"
    if how == "cut":
        n = one.randrange(len(whole) + 1)
        path.write_bytes(whole[:n])
        return f"{path.name} cut to {n} of {len(whole)} bytes"
    if how == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif how == "noise":
        path.write_bytes(one.randbytes(len(whole)))
    elif how in ("folder", "gone"):
        path.unlink()
        if how == "folder":
            path.mkdir()
    elif how in ("foreign", "lost", "root"):
        how = f"{how}: {_harm_json(path, how, one)}"
    elif how in ("key", "shape", "emptied", "moved"):
        how = f"{how}: {_harm_checkpoint(path, how, one)}"
    else:
        path.write_bytes(b"")
    return f"{path.name}: {how}"


def _harm_json(path, how, one):
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = one.randrange(len(lines))
    content = json.loads(lines[number])
    value, name = one.choice(FOREIGN), ""
    if how == "root":
        content = value
    else:
        node, name = content, one.choice(list(content))
        while isinstance(node[name], dict) and node[name] and one.random() < 0.7:
            node, name = node[name], one.choice(list(node[name]))
        if how == "lost":
            del node[name]
        else:
            node[name] = value
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")
    return f"line {number + 1} {name} {ascii(value)[:40] if how != 'lost' else ''}"


def _harm_checkpoint(path, how, one):
    state = torch.load(path, weights_only=True)
    node, name = state, one.choice(list(state))
    weights = state["state_dict"]
    if how == "key":
        while isinstance(node[name], dict) and node[name] and one.random() < 0.7:
            node, name = node[name], one.choice(list(node[name]))
        del node[name]
    elif how == "emptied" and state.get("optimizer_states"):
        name = "optimizer_states"
        state[name][0]["state"] = {}
    else:
        name = one.choice([key for key, x in weights.items() if x.is_floating_point()])
        weights[name] = weights[name][..., None] if how == "shape" else weights[name] + 1e-3
    torch.save(state, path)
    return name


def command_of(reader, run):
    if reader == "train":
        return [*TRAIN, "output_dir=out"]
    target = str(run.parent.parent if reader == "collect" else run)
    more = {"evaluate": ["--json"], "report": [], "export": ["--format", "transformers"]}
    return [reader, target, *more.get(reader, [])]


@pytest.mark.parametrize("number", range(60))
def test_a_damaged_stopped_run(number, hostile_runs, tmp_path, record_property):
    one, place = draw("stopped", number), tmp_path / "place"
    shutil.copytree(hostile_runs / "stopped", place / "out")
    (run,) = place.glob("out/*/*/")
    file = one.choice(sorted(run.glob(one.choice(STOPPED))) or [run / "resume.ckpt"])
    what = harm(file, one)
    if one.random() < 0.3:
        command = command_of(one.choice(READERS[:4]), run)
        judged(record_property, f"{what}; {command}", ended(command, place))
    command = command_of("train", run)
    end = ended(command, place)
    other = other_numbers(hostile_runs / "whole", place / "out") if end.kind == "ran" else ""
    judged(record_property, f"{what}; {command}", end, other)


@pytest.fixture(scope="module")
def evaluated(hostile_runs):
    """What `evaluate` says of the unharmed run."""
    (run,) = hostile_runs.glob("whole/*/*/")
    return json.loads(ended(["evaluate", str(run), "--json"], hostile_runs).text)["scores"]


@pytest.mark.parametrize("number", range(40))
def test_a_damaged_finished_run(number, hostile_runs, evaluated, tmp_path, record_property):
    one, place = draw("whole", number), tmp_path / "place"
    shutil.copytree(hostile_runs / "whole", place / "out")
    (run,) = place.glob("out/*/*/")
    what = harm(one.choice(sorted(run.glob(one.choice(WHOLE)))), one)
    reader = one.choice(READERS[3:5] if "last.ckpt" in what else READERS)
    command = command_of(reader, run)
    end, why = ended(command, place), ""
    if reader == "evaluate" and end.kind == "ran" and json.loads(end.text)["scores"] != evaluated:
        why = "other scores than unharmed"
    if reader == "export" and end.kind == "ran" and "moved" in what:
        why = "exports weights that are not the run's"
    judged(record_property, f"{what}; {command}", end, why)


@pytest.fixture
def disk(tmp_path):
    """`disk(size)`: a tmpfs of that size at `place/out`, or None where none can be mounted."""
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
    place, command = tmp_path / "place", [*TRAIN, "output_dir=out"]
    n_bytes = int(size[:-1]) * {"k": 2**10, "m": 2**20}[size[-1]]
    end = ended(command, place, file_size=None if disk(size) else n_bytes // 4)
    judged(record_property, f"full at {size}; {command}", end)
    disk("64m", "remount")
    end = ended(command, place)
    other = other_numbers(hostile_runs / "whole", place / "out") if end.kind == "ran" else "no end"
    judged(record_property, f"full at {size}, then room; {command}", end, other)
    assert end.kind == "ran", end.text


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("what", ["output_dir", "metrics.jsonl", "resume.ckpt", "folder"])
def test_what_is_taken_away(what, number, hostile_runs, tmp_path, record_property):
    one, place = random.Random(f"{what}{number}"), tmp_path / "place"
    place.mkdir()

    def take_away():
        if what == "output_dir":
            return shutil.rmtree("out")
        (run,) = (path.parent for path in Path("out").rglob(".lock"))
        if what == "folder":
            return shutil.rmtree(run)
        (run / what).unlink(missing_ok=True)
        if number % 2:
            (run / what).mkdir()

    event = one.randint(1, 60)
    command = f"{what} taken away at event {event} of {[*TRAIN, 'output_dir=out']}"
    end = ended(lambda: stop_after([*OF_RUNS, "output_dir=out"], event, react=take_away), place)
    other = ""
    if end.kind == "ran":
        try:
            other = other_numbers(hostile_runs / "whole", place / "out")
        except ValueError as error:
            other = f"no record of it: {error}"
    judged(record_property, command, end, other)
