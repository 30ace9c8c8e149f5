"""Different runs in one process, in two orders, and each in a new process: the same bits."""

import hashlib
import json
import logging
import os
import pickle
import random
import signal
from pathlib import Path

import pytest
import torch

from isotrain.config.compose import compose_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records
from isotrain.training.isolation import isolated
from tests.processes import server_with_imports
from tools.kill_points import untimed

SHARED = (
    *("encoder=tiny", "encoder.width=16", "source=demo", "report=false", "cache_dir=null"),
    *("trainer.accelerator=cpu", "trainer.max_steps=3", "data.n_train=48", "data.n_dev=32"),
    *("data.n_test=32", "data.batch_size=8", "trainer.log_every_n_steps=1", "metric=[isoscore]"),
)
RUNS = {
    "plain": ("task=rte", "training.select=best", "trainer.val_check_interval=1", "seed=7"),
    "cluster_pca": (
        *("task=wic", "isotropy=cluster_pca", "isotropy.n_clusters=2", "monitor.every_steps=1"),
        "metric=[isoscore,lid,partition_null]",
    ),
    "bf16": ("task=rte", "trainer.precision=bf16-mixed", "isotropy=zca"),
    "two threads": (
        *("task=wic", "threads=2", "isotropy=mean", "site=[tokens,pooled]", "speed=exact"),
        *("data.label_noise=0.3", "data.batching=random"),
    ),
    "lora": ("task=rte", "peft=lora", "peft.r=2", "seed=3"),
    "deterministic": ("task=stsb", "+trainer.deterministic=true", "+trainer.benchmark=true"),
    "double": ("task=wic", "trainer.precision=64-true", "objective=[cosreg]"),
    "anomalies": (
        *("task=text", "pooling=mean", "objective=[simcse]", "+trainer.detect_anomaly=true"),
        "freezing=gradual",
    ),
}


def digest(place, name):
    """What a run leaves, but for its times."""
    cfg = compose_run([*SHARED, *RUNS[name], f"output_dir={place}"])
    scores = run(cfg)
    folder = folder_of(cfg)
    record = json.loads((folder / "result.json").read_text())
    return {
        "scores": repr(scores),
        "rows": repr([untimed(row) for row in read_records(folder / "metrics.jsonl")]),
        "weights": record["weights_sha256"],
        "threads": record["environment"]["threads"],
        **{
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(folder.glob("predictions/*"))
        },
    }


def _digests(place, names, to):
    with open(place / "log", "w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    Path(to).write_bytes(pickle.dumps({name: digest(place / "runs", name) for name in names}))


def in_one_process(place, names):
    """What these runs leave, one after the other in a process."""
    place.mkdir()
    process = server_with_imports().Process(target=_digests, args=(place, names, place / "found"))
    process.start()
    process.join()
    assert process.exitcode == 0, (place / "log").read_text()
    return pickle.loads((place / "found").read_bytes())


@pytest.mark.slow
def test_a_warm_worker_is_as_a_new_one(tmp_path):
    """Each run before and after each other one, and two in a process of their own."""
    there, back = (
        in_one_process(tmp_path / f"from {order[0]}", order)
        for order in (list(RUNS), list(RUNS)[::-1])
    )
    for name in RUNS:
        assert there[name] == back[name], name
    assert len({str(found) for found in there.values()}) == len(RUNS)
    assert all(any("predictions" in key for key in found) for found in there.values())
    for name in ("cluster_pca", "double"):
        assert in_one_process(tmp_path / name, [name])[name] == there[name]


def state():
    """Of this process, what a run could change."""
    return {
        "environment": dict(os.environ),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "precision": torch.get_float32_matmul_precision(),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "log": logging.getLogger("pytorch_lightning").level,
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }


def test_a_run_leaves_its_process_as_it_was(composed, small, tmp_path):
    before = state()
    own = (*small, "task=rte", "metric=[]", "trainer.max_steps=1", f"output_dir={tmp_path}")
    run(composed(*own, "threads=2", "+trainer.deterministic=true", "+trainer.detect_anomaly=true"))
    assert state() == before
    run(composed(*own, "+trainer.benchmark=true", "trainer.precision=64-true"))
    assert state() == before


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_options_of_torch_are_restored(precision):
    before = state()
    with isolated():
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = precision == "highest"
        torch.backends.cudnn.benchmark = True
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(3)
        logging.getLogger("pytorch_lightning").setLevel(logging.CRITICAL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ["PL_GLOBAL_SEED"] = "7"
        torch.manual_seed(7)
    assert state() == before
