"""One finished run, and what both loggers have of it: read back from what they wrote."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import few, parse_key
from isotrain.runs.snapshots import read_snapshots
from isotrain.training.module import FineTuning
from tests import wandb_record

PASSWORD, KEY, TOKEN = (
    "correct-horse-battery",
    "0123456789abcdef" * 2 + "01234567",
    "hf_" + "aB3" * 9,
)
IN_ADDRESS, IN_ARGV, PRINTED = "pw-in-an-address", "secret-of-the-command-line", "printed-secret"


@pytest.fixture(scope="module")
def finished(composed, small, tmp_path_factory):
    """A run with a layer and both loggers, in a process that is full of secrets."""
    root = tmp_path_factory.mktemp("runs")
    cfg = composed(
        *small,
        *("task=wic", "isotropy=cluster_pca", "logger=[wandb,tensorboard]", f"output_dir={root}"),
        *("logger.wandb.group=my-group", "logger.wandb.job_type=train", "cache_dir=null"),
        f"logger.wandb.tags=[{PASSWORD},{TOKEN},'https://me:{IN_ADDRESS}@host/x']",
        *("trainer.log_every_n_steps=2", "trainer.val_check_interval=4"),
    )
    original = FineTuning.training_step

    def telling(self, batch, batch_idx):
        print("connecting with", PRINTED)
        return original(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("DB_PASSWORD", PASSWORD), ("WANDB_API_KEY", KEY)):
            patch.setenv(name, value)
        patch.setenv("WANDB_MODE", "offline")
        patch.setattr("sys.argv", ["train.py", f"token={IN_ARGV}"])
        patch.setattr(FineTuning, "training_step", telling)
        run(cfg, show=show_run)
    folder = folder_of(cfg)
    record = wandb_record.newest(folder)
    rows = read_records(folder / "metrics.jsonl")
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    result = read_result(folder)
    return SimpleNamespace(folder=folder, record=record, rows=rows, events=events, result=result)


def shown(finished, row):
    """What a logger gets of a row."""
    kept = {key: value for key, value in row.items() if key not in ("step", "time_s")}
    if "train/loss" in row:
        curves = ("optim/learning_rate", "optim/gradient_norm", "speed/tokens_per_second")
        assert all(row[key] > 0 for key in curves)
    return few(kept, finished.result["headline"])


def test_every_row_is_in_wandb_once_with_its_step_and_few_isotropy_values(finished):
    sent = wandb_record.scalars(finished.record)
    assert len(sent) == len(finished.rows) > 6
    for found, row in zip(sent, finished.rows, strict=True):
        assert found.pop("trainer/global_step") == row["step"]
        own = {key: value for key, value in found.items() if not key.startswith("_")}
        assert own == pytest.approx(shown(finished, row), nan_ok=True)
    measured = {key for row in finished.rows for key in row if parse_key(key)}
    charted = {key for row in sent for key in row if parse_key(key)}
    assert 0 < len(charted) < len(measured) / 2


def test_every_row_is_in_tensorboard_once_with_few_isotropy_values(finished):
    expected = {}
    for row in finished.rows:
        for key, value in shown(finished, row).items():
            expected.setdefault(key, []).append((row["step"], value))
    assert set(finished.events.Tags()["scalars"]) == set(expected)
    for key, points in expected.items():
        found = [(event.step, event.value) for event in finished.events.Scalars(key)]
        assert [step for step, _ in found] == [step for step, _ in points]
        assert [v for _, v in found] == pytest.approx([v for _, v in points], 1e-6, nan_ok=True)


def test_no_secret_is_in_anything_that_wandb_wrote(finished):
    config = wandb_record.config(finished.record)
    hidden = ["<redacted>", "<redacted>", "https://<redacted>@host/x"]
    assert config["logger"]["wandb"]["tags"] == hidden, "the secrets were there"
    assert set(wandb_record.run_of(finished.record).tags) == set(hidden)
    files = [path for path in (finished.folder / "wandb").rglob("*") if path.is_file()]
    assert finished.record in files
    for path in files:
        content = path.read_bytes()
        for secret in (PASSWORD, KEY, TOKEN, IN_ADDRESS, IN_ARGV, PRINTED):
            assert secret.encode() not in content, f"{secret} in {path}"


def test_media_of_the_run_are_there(finished):
    steps = list(read_snapshots(finished.folder))
    assert len(steps) > 2
    spectra = [
        row["trainer/global_step"]
        for row in wandb_record.history(finished.record)
        if any(key.startswith("spectra/layer_02/tokens") for key in row)
    ]
    assert spectra == steps
    kinds = {"image-file": "maps/layer_02/tokens", "table-file": "tables/isotropy"}
    for kind, key in kinds.items():
        found = wandb_record.objects(finished.record, kind)[key]
        assert (Path(finished.record.parent) / "files" / found["path"]).stat().st_size > 1000
    for metric in finished.result["headline"]:
        assert f"heatmaps/{metric}/tokens" in wandb_record.objects(finished.record, "image-file")
