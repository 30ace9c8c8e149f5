"""One process and two: the same weights, statistics and scores; after a stop, the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from isotrain.runs.files import read_records
from isotrain.runs.predictions import read_predictions
from isotrain.runs.snapshots import read_snapshots
from tests.processes import train_on_ranks
from tools.kill_points import untimed

ROOT = Path(__file__).parents[2]
MEASURES = (
    "metric=[isoscore,outlier_dims,scatter_ratio,self_similarity,cosine_drift,linear_cka]",
    "metric.self_similarity.function.min_count=2",
)
PHASES = (  # each of two steps or more, and each step of two uneven micro-batches
    *("freezing=gradual", "freezing.unit=step", "freezing.every=2", "trainer.max_epochs=2"),
    *("training.layer_decay=0.5", "training.reinit_blocks=1", "training.warmup_fraction=0"),
)
# What SGD adds to the weights is the gradient. Adam would divide rounding by rounding.
SGD = ("optimizer._target_=torch.optim.SGD", "optimizer.lr=0.05")
SGD += ("~optimizer.betas", "~optimizer.eps", "~optimizer.fused")
EVALUATION, TRAINING = (f"{rows}/n_rows/layer_01/tokens" for rows in ("isotropy", "train_isotropy"))


ZERO_GRADIENT = ("attention.self.key.bias", "attention.self.k_lin.bias")  # softmax ignores it


@pytest.fixture(scope="module")
def environment():
    """Without OMP_NUM_THREADS: `threads` must reach every rank by itself."""
    kept = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    return {**kept, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def overrides(small):
    """Uneven shards everywhere: 15 rows a batch, 96 and 32 rows, 3 evaluation batches."""
    return [
        *small,
        *("task=wic", "task.head_dropout=0", "task.form=bi", "threads=1"),
        *("encoder.dropout=0", "data.batch_size=15", "data.eval_batch_size=11"),
        *("isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[tokens,pooled]"),
        *("objective=[cosreg]", "trainer.accumulate_grad_batches=2"),
        *("trainer.log_every_n_steps=1", "trainer.val_check_interval=4"),
        # Fewer rows than there are: which ones are kept counts too.
        *("monitor.max_rows=40", "monitor.map_rows=20", "monitor.every_steps=1"),
        *SGD,
    ]


def start(environment, cwd, *overrides):
    command = [sys.executable, "-m", "isotrain", "train", *overrides]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(environment, cwd, *overrides):
    process = start(environment, cwd, *overrides)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    (folder,) = (path.parent for path in cwd.rglob("result.json"))
    return what_is_left(folder, text)


def what_is_left(folder, text):
    assert "Warning" not in text
    state = load_file(folder / "weights.safetensors")
    return folder, state, read_records(folder / "metrics.jsonl"), text


def gap(one, two, least=1e-6):
    # A bias that centring takes away has no gradient but rounding, and stays near 1e-18.
    return float((one.double() - two.double()).norm() / one.double().norm().clamp_min(least))


@pytest.fixture(scope="module")
def one_and_two(environment, overrides, tmp_path_factory):
    """The same run in one process and in two, through an unfreezing in three phases."""
    line = (*overrides, *MEASURES, *PHASES, "trainer.precision=64-true")
    one = what_is_left(*train_on_ranks(1, tmp_path_factory.mktemp("processes1"), *line))
    cwd = tmp_path_factory.mktemp("processes2")
    return one, finished(environment, cwd, *line, "trainer.devices=2")


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(one_and_two):
    (_, state1, _, _), (_, state2, _, _) = one_and_two
    assert len(state1) > 35
    assert state1.keys() == state2.keys()
    for name in state1:
        if not name.endswith(ZERO_GRADIENT):
            assert gap(state1[name], state2[name]) < 1e-9, name


@pytest.mark.slow
def test_two_processes_log_what_one_does(one_and_two):
    (_, _, rows1, _), (_, _, rows2, text) = one_and_two
    assert text.count("metrics.jsonl (") == 1, "only the first process prints"
    assert len(rows1) == len(rows2) > 5
    assert any("train/cosreg" in row for row in rows1)
    assert len([row for row in rows1 if TRAINING in row]) == rows1[-1]["step"] > 3
    drift = [row["isotropy/cosine_drift/pooled/before"] for row in rows1 if EVALUATION in row]
    assert len(drift) >= 3
    assert drift[0] < 1e-12 < 1e-6 < drift[-1]
    for row1, row2 in zip(rows1, rows2, strict=True):
        assert row1.keys() == row2.keys()
        for key in untimed(row1):
            # correlations, and the rows of the monitor, are float32
            assert row1[key] == pytest.approx(row2[key], rel=1e-5, abs=1e-9), (key, row1["step"])


@pytest.mark.slow
def test_two_processes_unfreeze_as_one_does(one_and_two):
    """DDP is wrapped anew in each phase; it warns of nothing."""
    (one, two), texts = (
        [json.loads((found[0] / "result.json").read_text()) for found in one_and_two],
        [found[3] for found in one_and_two],
    )
    assert (one["n_processes"], two["n_processes"]) == (1, 2)
    assert [phase["from_step"] for phase in one["phases"]] == [0, 2, 4]
    assert one["phases"] == two["phases"]
    assert one["steps"] == two["steps"] > 4
    assert [text.count("from step") for text in texts] == [3, 3]


@pytest.mark.slow
def test_two_processes_predict_what_one_does(one_and_two):
    for split in ("dev", "test"):
        one, two = (read_predictions(found[0], split) for found in one_and_two)
        assert one is not None
        assert one.index.tolist() == two.index.tolist()
        np.testing.assert_allclose(one.prediction, two.prediction, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_two_processes_keep_the_snapshots_of_one(one_and_two):
    maps1, maps2 = (read_snapshots(found[0]) for found in one_and_two)
    assert list(maps1) == list(maps2)
    assert maps1
    for step, arrays in maps1.items():
        assert arrays.keys() == maps2[step].keys()
        for name, one in arrays.items():
            two = maps2[step][name]
            if name.startswith(("index/", "label/", "token/", "frequency/", "n_rows/")):
                assert np.array_equal(one, two), (step, name)
            elif name.startswith("spectrum/"):
                np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5 * one.max())


IN_64 = ("threads=1", "data.batch_size=15", "encoder.dropout=0", "trainer.precision=64-true")
CASES = {  # steps, what trains first, largest distance of weights over their norm, its floor, keys
    # Muon iterates in bfloat16: sums in another order may change an update by 2⁻⁸.
    "muon": (
        *(7, {"embeddings", "block 1", "block 2", "head"}, 1e-2, 1e-3),
        *("task=rte", "task.head_dropout=0", "optimizer=muon", "optimizer.muon_lr=1e-3"),
    ),
    "solved head": (
        *(7, {"head"}, 1e-7, 1e-6),
        *("task=wic", "task.head_dropout=0", "training.solved_head=true", "isotropy=zca"),
        *("freezing=head_first", *SGD),
    ),
    "nothing above block 1": (
        *(3, {"embeddings", "block 1", "objectives"}, 1e-9, 1e-6),
        *("task=nli_pairs", "objective=[simcse]", "objective.simcse.reads=[layer_1/mean]"),
        *("objective.simcse.positives=pair", "objective.simcse.projection=mlp"),
        *("isotropy=batch_norm", "site=[layer_2]", *SGD),
    ),
    "fitted at the start": (
        *(7, {"embeddings", "block 1", "block 2", "head", "isotropy layers"}, 1e-9, 1e-6),
        *("task=wic", "task.head_dropout=0", "isotropy=zca_dense", "site=[tokens,pooled]", *SGD),
    ),
    "iso_grad": (
        *(4, {"embeddings", "block 1", "block 2", "head"}, 1e-7, 1e-6),
        *("task=rte", "task.head_dropout=0", "isotropy=iso_grad", "isotropy.queue_rows=64"),
        *("isotropy.rho=0.5", "site=[tokens,pooled]", "trainer.accumulate_grad_batches=2"),
        *("speed=exact", *SGD),
    ),
    "every path": (
        *(14, {"block 2", "head"}, 1e-6, 1e-6),
        *("task=wic", "task.head_dropout=0", "data.batching=random", "data.batch_size=14"),
        *("freezing=gradual", "freezing.unit=step", "freezing.every=8", "trainer.max_epochs=2"),
        *("cache_dir=${output_dir}/.cache", *SGD),
    ),
    "objectives alone": (
        *(2, {"embeddings", "block 1", "block 2"}, 1e-9, 1e-4),
        *("task=text", "pooling=mean", "objective=[uniformity]", "isotropy=cluster_pca"),
        *("isotropy.n_clusters=2", "site=[tokens,pooled]", "data.eval_batch_size=11"),
        *("metric=[isoscore]", "trainer.max_steps=2", "trainer.log_every_n_steps=1", *SGD),
    ),
    "select": (
        *(None, {"embeddings", "block 1", "block 2"}, 1e-5, 1e-6),
        *("task=stsb", "task.head_dropout=0", "task.form=bi", "data.eval_batch_size=11"),
        *("isotropy=mean", "metric=[isoscore]", "trainer.max_epochs=4"),
        *("trainer.val_check_interval=2", "checkpoint.every_steps=2", "training.select=holdout"),
        *(
            "callbacks=[early_stopping]",
            "callbacks.early_stopping.patience=5",
            "data.holdout=0.3",
            *SGD,
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(small, tmp_path, case):
    n_steps, trained, most, least, *overrides = CASES[case]
    line = (*small, *IN_64, "metric=[]", "cache_dir=null", *overrides)
    results, states, logs = [], [], []
    for n in (1, 2):
        folder, state, rows, _ = what_is_left(*train_on_ranks(n, tmp_path / str(n), *line))
        results.append(json.loads((folder / "result.json").read_text()))
        states.append(state)
        logs.append(rows)
    one, two = results
    assert (one["n_processes"], two["n_processes"]) == (1, 2)
    assert one["phases"] == two["phases"]
    assert one["steps"] == two["steps"] == (n_steps or one["steps"])
    groups = one["phases"][0]["groups"]
    assert {part for group in groups for part in group["parts"]} == trained
    assert {group["lr"] for group in groups} == {1e-3 if case == "muon" else 0.05}
    for name, weights in states[0].items():
        if weights.is_floating_point() and not name.endswith(ZERO_GRADIENT):
            assert gap(weights, states[1][name], least) < most, name
    if case == "every path":
        for result in results:
            others = {name for name, said in result["speed"].items() if said != "taken"}
            assert others == {"dropout"}
    if case == "select":
        for key in ("select", "selected_step", "n_candidates", "stopped_early"):
            assert one[key] == two[key], key
        assert 0 < one["selected_step"] < one["steps"], "the last weights would prove nothing"
        assert one["n_rows"]["holdout"] % 2, "an odd number: Lightning halves it over two processes"
    if "metric=[isoscore]" in overrides:
        for row1, row2 in zip(*logs, strict=True):
            assert row1.keys() == row2.keys()
            for key in untimed(row1):
                # of cosines near 1, which are float32
                near = 1e-3 if key.endswith(("pearson", "spearman", "spread")) else 1e-8
                assert row1[key] == pytest.approx(row2[key], rel=1e-5, abs=near), key


@pytest.mark.campaign
def test_two_processes_go_on_where_they_were_killed_and_select_the_same_weights(
    environment, overrides, tmp_path
):
    """Torchrun starts the one run, and Lightning the other: that makes no difference either."""
    line = [*overrides, *MEASURES, "encoder.dropout=0.1"]
    line += ["trainer.max_epochs=4", "trainer.val_check_interval=2", "checkpoint.every_steps=2"]
    line += [
        "training.select=holdout",
        "callbacks=[early_stopping]",
        "callbacks.early_stopping.patience=3",
        "data.holdout=0.3",
    ]
    folder, whole, rows, _ = what_is_left(*train_on_ranks(2, tmp_path / "whole", *line))
    (tmp_path / "killed").mkdir()
    line += ["trainer.devices=2"]
    process = start(environment, tmp_path / "killed", *line)
    while not list((tmp_path / "killed").rglob("best.ckpt")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    other, state, again, text = finished(environment, tmp_path / "killed", *line)
    assert "resuming after step" in text
    one, two = (json.loads((place / "result.json").read_text()) for place in (folder, other))
    assert (one["resumed_after_step"], two["resumed_after_step"] is None) == (None, False)
    assert one["select"] == "holdout"
    assert 0 < one["selected_step"] < one["steps"], "the last weights would prove nothing"
    for key in ("selected_step", "n_candidates", "stopped_early", "steps"):
        assert one[key] == two[key], key
    for name in whole:
        assert torch.equal(whole[name], state[name]), name
    for row1, row2 in zip(rows, again, strict=True):
        assert untimed(row1) == untimed(row2)


@pytest.mark.campaign
def test_processes_started_with_different_configurations_stop(environment, overrides, tmp_path):
    """As a launcher would that gives each rank its own command line."""
    processes = []
    for rank in (0, 1):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "TORCHELASTIC_RUN_ID": "x"}
        processes.append(
            start(
                {**environment, **ranks, **address, "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
                tmp_path,
                *overrides,
                *("trainer.devices=2", "trainer.max_steps=1", f"seed={rank}"),
            )
        )
    texts = [process.communicate(timeout=120)[0] for process in processes]
    assert all(process.returncode not in (0, None) for process in processes), texts
    assert any("must share one configuration" in text for text in texts), texts
