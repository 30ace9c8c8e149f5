"""One run from start to end: its files, its keys at every evaluation, and its second call."""

import json
import signal
import sys

import pytest
import torch
from omegaconf import OmegaConf

from isotrain import runner as run_module
from isotrain.commands.train import exit_code
from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records
from isotrain.runs.predictions import read_predictions
from isotrain.runs.snapshots import read_snapshots
from isotrain.training.module import FineTuning
from tests.stopped_runs import fail, stopped

NULLS = [f"partition_null_{name}" for name in ("low", "median", "high")]
METRICS = ("isoscore", "isoscore_corrected", "mean_cosine", "partition", *NULLS, "n_rows")
OUTLIERS = (
    *("largest_mean", "kurtosis", "largest_kurtosis", "n_high_variance"),
    *(f"{part}_{k}" for part in ("contribution", "share", "index") for k in (1, 2, 3)),
)
PARTS = (
    *("cosine_drift", "scatter_ratio_value", "scatter_ratio_share"),
    *(f"outlier_dims_{name}" for name in OUTLIERS),
)
SITES = ("tokens", "pooled")
PLACES = {
    *(f"layer_{layer:02d}/{view}" for layer in range(3) for view in ("cls", "tokens", "mean")),
    *(f"{site}/{side}" for site in SITES for side in ("before", "after")),
}
KEYS = {f"isotropy/{metric}/{place}" for metric in (*METRICS, *PARTS) for place in PLACES}


@pytest.fixture(scope="module")
def overrides(small):
    return (
        *small,
        "task=wic",
        "isotropy=cluster_pca",
        "isotropy.n_clusters=2",
        f"site=[{','.join(SITES)}]",
        "trainer.max_steps=5",  # of 12: stops in the middle of the epoch
        "trainer.val_check_interval=3",
        "trainer.log_every_n_steps=2",
    )


@pytest.fixture(scope="module")
def finished(composed, overrides, tmp_path_factory):
    """A finished run: configuration, scores and folder."""
    cfg = composed(*overrides, f"output_dir={tmp_path_factory.mktemp('runs')}")
    scores = run(cfg)
    return cfg, scores, folder_of(cfg)


@pytest.fixture
def of_rte(composed, small, tmp_path):
    """`of_rte("seed=1")`: the configuration of a small run below the folder of the test."""
    return lambda *more: composed(*small, "task=rte", f"output_dir={tmp_path}", *more)


def test_files(finished):
    _, _, folder = finished
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "snapshots",
        "predictions",
        "result.json",
        "weights.safetensors",
        ".lock",
    }
    assert folder.parent.name == "wic"
    assert folder.name.startswith("cluster_pca-")
    assert list(read_snapshots(folder)) == [0, 3, 5]


def test_the_page_is_drawn_unless_it_is_not_wanted(of_rte):
    short = ("trainer.max_steps=1", "checkpoint.final=false", "metric=[isoscore]")
    cfg = of_rte("report=true", *short)
    run(cfg, show=show_run)
    folder = folder_of(cfg)
    assert "isoscore" in (folder / "report.html").read_text(encoding="utf-8")
    assert not (folder / "figures").exists(), "pictures come with `isotrain report`"
    without = of_rte("report=false", *short)
    assert folder_of(without) == folder, "no number depends on it"


def test_result(finished):
    _, scores, folder = finished
    result = json.loads((folder / "result.json").read_text())
    assert set(result) == {
        *("status", "method", "seed", "study", "search", "config", "overrides"),
        *("environment", "data"),
        *(
            "n_parameters",
            "phases",
            "n_rows",
            "lost_input",
            "data_changes",
            "limited_evaluation",
            "drawn_splits",
        ),
        *(
            "label_majority",
            "classes",
            "labels",
            "scale",
            "encoder",
            "width",
            "is_causal",
            "device",
            "n_processes",
        ),
        *("monitor", "mode", "headline", "finished_at", "resumed_after_step", "init_from"),
        "place",
        *("earlier_environments", "select", "selected_step", "n_candidates", "steps", "scores"),
        *("stopped_early", "degenerate", "degenerate_reason", "timings_s", "speed"),
        "weights_sha256",
        "sha256",
    }
    assert result["status"] == "finished"
    assert result["steps"] == 5
    assert result["scores"] == scores
    assert (result["monitor"], result["mode"]) == ("val/accuracy", "max")
    assert result["headline"] == ["isoscore_corrected", "mean_cosine"]
    assert result["n_rows"] == {"train": 96, "dev": 32, "test": 32}
    labels = {split: list(read_predictions(folder, split).label) for split in ("dev", "test")}
    most = {split: max(map(of.count, of)) / len(of) for split, of in labels.items()}
    assert result["label_majority"] == most
    assert result["environment"]["threads"] == result["config"]["threads"] > 0
    assert result["environment"]["torch"] == torch.__version__
    assert set(result["timings_s"]) == {"first_evaluation", "fit", "test", "total"}
    assert {"val/accuracy", "val/loss", "test/accuracy", "test/loss"} <= set(scores)
    assert set(scores) >= KEYS
    assert all(0 <= scores[key] <= 1 for key in ("val/accuracy", "test/accuracy"))


def test_the_stored_configuration_is_the_one_that_ran(finished):
    cfg, _, folder = finished
    stored = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    result = json.loads((folder / "result.json").read_text())
    assert stored == result["config"]
    assert stored["isotropy"]["n_clusters"] == 2
    assert "${" not in (folder / "config.yaml").read_text()
    again = OmegaConf.merge(cfg, stored)
    assert folder_of(again) == folder


def test_isotropy_at_step_0_at_each_evaluation_and_at_the_end(finished):
    _, scores, folder = finished
    rows = read_records(folder / "metrics.jsonl")
    measured = [row for row in rows if any(key.startswith("isotropy/") for key in row)]
    assert [row["step"] for row in measured] == [0, 3, 5]
    for row in measured:
        assert {key for key in row if key.startswith("isotropy/")} == KEYS
        assert "val/accuracy" in row
    assert all(row[key] == row[key] for row in measured for key in KEYS)  # no NaN
    first, *_, last = measured
    for metric in ("isoscore", "mean_cosine", "partition", "cosine_drift", "scatter_ratio_share"):
        key = f"isotropy/{metric}/layer_02/tokens"
        assert first[key] != last[key]
    assert {key: last[key] for key in KEYS} == {key: scores[key] for key in KEYS}
    assert len([row for row in rows if "test/accuracy" in row]) == 1


def test_every_evaluation_comes_once(of_rte):
    cfg = of_rte("trainer.max_epochs=2", "trainer.max_steps=24", "metric=[isoscore]")
    run(cfg)
    rows = read_records(folder_of(cfg) / "metrics.jsonl")
    assert [row["step"] for row in rows if "val/accuracy" in row] == [0, 12, 24]


def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    cfg, scores, folder = finished

    def build(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(run_module, "build", build)
    before = (folder / "result.json").stat().st_mtime_ns
    assert run(cfg, show=show_run) == scores
    assert (folder / "result.json").stat().st_mtime_ns == before
    printed = capsys.readouterr().out
    assert "rerun=true" in printed
    assert str(folder) in printed
    assert f"{100 * scores['val/accuracy']:.1f}" in printed


def test_rerun_trains_again_to_the_same_result(finished, composed, overrides):
    cfg, scores, folder = finished
    again = composed(*overrides, f"output_dir={cfg.output_dir}", "rerun=true")
    before = (folder / "result.json").stat().st_mtime_ns
    assert folder_of(again) == folder
    assert run(again) == scores
    assert (folder / "result.json").stat().st_mtime_ns > before
    assert len([r for r in read_records(folder / "metrics.jsonl") if "test/loss" in r]) == 1


def test_an_exit_that_is_no_signal_is_a_failure(of_rte, monkeypatch):
    cfg = of_rte("trainer.max_steps=3", "metric=[]")
    monkeypatch.setattr(FineTuning, "training_step", lambda self, batch, batch_idx: sys.exit(3))
    with pytest.raises(RuntimeError, match="exited with code 3"):
        run(cfg)
    assert json.loads((folder_of(cfg) / "result.json").read_text())["status"] == "failed"


def test_out_of_memory_is_one_sentence_and_the_run_resumes(of_rte, monkeypatch, capsys):
    cfg = of_rte("trainer.max_steps=3", "metric=[]", "checkpoint.every_steps=1")
    step, calls = FineTuning.training_step, []

    def full(self, batch, batch_idx):
        calls.append(batch_idx)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0")
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "training_step", full)
        assert exit_code(lambda: run(cfg)) == 1
    errors = capsys.readouterr().err
    assert "isotrain: the run stopped\n  out of memory (CUDA out of memory); free" in errors
    assert "Traceback" not in errors
    assert json.loads((folder_of(cfg) / "result.json").read_text())["status"] == "failed"
    assert "val/accuracy" in run(cfg)
    assert "resuming after step 2" in capsys.readouterr().out


def test_a_page_that_cannot_be_drawn_costs_no_finished_run(of_rte, monkeypatch, capsys):
    cfg = of_rte("metric=[]", "trainer.max_steps=1", "report=true")
    folder = folder_of(cfg)

    def explode(*_):
        stored = json.loads((folder / "result.json").read_text())
        assert stored["status"] == "finished", "written before anything is drawn"
        raise RuntimeError("no font")

    monkeypatch.setattr("isotrain.pages.report.write_report", explode)
    scores = run(cfg, show=show_run)
    printed = capsys.readouterr().out
    assert printed.count("report.html could not be drawn (RuntimeError: no font)") == 1
    assert "report.html, " not in printed, "the summary names what is there"
    assert not (folder / "resume.ckpt").exists()
    assert run(cfg, show=show_run) == scores
    assert "finished before" in capsys.readouterr().out


def test_a_run_that_fails_gives_the_signal_handlers_back(of_rte, monkeypatch):
    cfg = of_rte("metric=[]", "trainer.max_steps=1")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def explode(*_):
        assert all(signal.getsignal(number) is not handler for number, handler in before.items())
        raise RuntimeError("on purpose")

    def mine(*_):
        pass

    try:
        before[signal.SIGTERM] = mine
        signal.signal(signal.SIGTERM, mine)
        monkeypatch.setattr(FineTuning, "training_step", explode)
        with pytest.raises(RuntimeError, match="on purpose"):
            run(cfg)
        assert {number: signal.getsignal(number) for number in before} == before
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_final_weights_that_are_asked_for_later_come_with_a_rerun(of_rte):
    base = ("trainer.max_steps=1", "metric=[]")
    without = of_rte(*base, "checkpoint.final=false")
    scores = run(without)
    folder = folder_of(without)
    assert not (folder / "weights.safetensors").exists()
    assert run(of_rte(*base, "rerun=true")) == scores
    assert (folder / "weights.safetensors").is_file(), "in the same folder"


def test_a_failed_rerun_leaves_nothing_of_the_run_before(of_rte, monkeypatch):
    base = ("trainer.max_steps=1", "metric=[]")
    run(of_rte(*base))
    cfg = of_rte(*base, "rerun=true")
    stopped(cfg, monkeypatch, "validation_step", 1, fail)
    folder = folder_of(cfg)
    assert json.loads((folder / "result.json").read_text())["status"] == "failed"
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "result.json", ".lock"}


def test_changed_data_are_another_run_and_moved_data_are_not(
    composed, small, tmp_path, write_fixture_data
):
    root = write_fixture_data(tmp_path / "rows")
    base = (*small, f"source.root={root}", "task=rte", "metric=[]", "checkpoint.every_steps=2")
    cfg = composed(*base, f"output_dir={tmp_path / 'runs'}", "trainer.max_steps=4")
    first = folder_of(cfg)
    rows = root / "rte" / "train.jsonl"
    text = rows.read_text()
    rows.write_text(text.replace("old", "new"))
    assert folder_of(cfg) != first
    rows.write_text(text)
    moved = root.rename(tmp_path / "moved")
    cfg.source.root = str(moved)
    assert folder_of(cfg) == first
