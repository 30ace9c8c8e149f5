"""What a finished run shows in W&B, sent for real and read back from the record on disk.

M points of a map, S eigenvalues.
"""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from isotrain.pages.wandb_media import media, summary
from isotrain.runs.files import RecordFile, read_records, write_json, write_result
from isotrain.runs.keys import few, table
from isotrain.runs.snapshots import write_snapshot
from isotrain.training.loggers.wandb_logger import build_wandb_logger
from tests import wandb_record

STEPS, LAYERS, VIEWS = (0, 4, 12), (0, 1, 2), ("cls", "tokens")
HEADLINE = ("isoscore", "partition")
CLOUDS = [f"layer_{n:02d}/{view}" for n in LAYERS for view in VIEWS] + ["pooled/after"]
CHARTED = [f"layer_{n:02d}/tokens" for n in LAYERS] + ["layer_02/cls", "pooled/after"]
PAGE = "<!doctype html><html><head></head><body>a page</body></html>"


def value_of(metric, cloud, step):
    return len(metric) / 100 + CLOUDS.index(cloud) / 10 + step / 1000


def write_run(folder, snapshots=True):
    """A finished run as others leave it: rows, result, snapshots and page."""
    folder.mkdir()
    file, rng = RecordFile(folder / "metrics.jsonl"), np.random.default_rng(0)
    for step in STEPS:
        row = {"step": step, "time_s": 1.0, "val/accuracy": 0.5 + (step % 12) / 100}
        for cloud in CLOUDS:
            for metric in (*HEADLINE, "lid"):
                row[f"isotropy/{metric}/{cloud}"] = value_of(metric, cloud, step)
            row[f"isotropy/partition_null_low/{cloud}"] = -9.0
            row[f"isotropy/n_rows/{cloud}"] = 64
        row["isotropy/lid/layer_00/cls"] = math.nan
        file.append(row)
        arrays = {f"label/{group}": np.arange(20.0) % 2 for group in (*VIEWS, "pooled_site")}
        for cloud in CLOUDS:
            arrays[f"spectrum/{cloud}"] = np.float32([6, 3, 1, 0]) * (1 + step)
            arrays[f"map/{cloud}"] = rng.standard_normal((20, 2)).astype("float32")
        arrays["spectrum/layer_00/tokens"] = np.zeros(4, "float32")  # equal rows: no shares
        if snapshots:
            write_snapshot(folder, step, arrays)
    result = {"status": "finished", "monitor": "val/accuracy", "mode": "max", "headline": HEADLINE}
    write_json(folder / "result.json", result)
    (folder / "report.html").write_text(PAGE)
    return folder


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A folder whose run was logged and published offline."""
    folder = write_run(tmp_path_factory.mktemp("published") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.delenv("WANDB_DATA_DIR", raising=False)
        logger = build_wandb_logger("project", None, save_dir=folder, name="run")
        for row in read_records(folder / "metrics.jsonl"):
            logger.log_metrics(few({"val/accuracy": row["val/accuracy"]}, ()), int(row["step"]))
        logger.publish(summary(folder), media(folder))
        logger.close(failed=False)
    record = wandb_record.newest(folder)
    return SimpleNamespace(folder=folder, record=record, files=record.parent / "files")


def objects(sent, kind):
    return wandb_record.objects(sent.record, kind)


def test_one_table_has_everything_that_was_measured(sent):
    found = objects(sent, "table-file")["tables/isotropy"]
    content = json.loads((sent.files / found["path"]).read_text())
    expected = [
        [None if isinstance(value, float) and math.isnan(value) else value for value in line]
        for line in table(read_records(sent.folder / "metrics.jsonl"))
    ]
    assert content["columns"] == [
        *("step", "rows", "layer", "view", "metric", "value", "n_rows", "null_low", "null_high")
    ]
    assert content["data"] == expected
    assert found["nrows"] == len(STEPS) * len(CLOUDS) * 3
    assert [0, "dev", "layer_00", "cls", "lid", None, 64, None, None] in content["data"]
    assert found["step"] == STEPS[-1]


@pytest.mark.parametrize("metric", HEADLINE)
@pytest.mark.parametrize("view", VIEWS)
def test_layers_are_lines_of_one_chart(sent, metric, view):
    key = f"layers/{metric}/{view}"
    found = objects(sent, "table-file")[f"{key}_table"]
    content = json.loads((sent.files / found["path"]).read_text())
    assert content["columns"] == ["step", "lineKey", "lineVal"]
    assert sorted(content["data"]) == sorted(
        [step, f"layer_{n:02d}", pytest.approx(value_of(metric, f"layer_{n:02d}/{view}", step))]
        for n in LAYERS
        for step in STEPS
    )
    chart = wandb_record.config(sent.record)[f"_wandb/visualize/{key}"]
    assert chart["panel_config"]["panelDefId"] == "wandb/lineseries/v0"


def test_pictures_can_be_opened(sent):
    found = objects(sent, "image-file")
    assert set(found) == {
        *(f"heatmaps/{metric}/{view}" for metric in HEADLINE for view in VIEWS),
        *("maps/layer_02/cls", "maps/layer_02/tokens", "maps/pooled/after"),
    }
    for key, description in found.items():
        image = Image.open(sent.files / description["path"]).convert("RGB")
        assert image.size == (description["width"], description["height"])
        assert description["step"] == STEPS[-1]
        assert len(image.getcolors(image.width * image.height)) > 20, "it shows something"
        assert (image.width > 2 * image.height) == key.startswith("maps/")  # three steps


def test_spectra_are_histograms_of_log_shares_at_each_snapshot(sent):
    rows = [
        row
        for row in wandb_record.history(sent.record)
        if any(k.startswith("spectra/") for k in row)
    ]
    assert [row["trainer/global_step"] for row in rows] == list(STEPS)
    clouds = [cloud for cloud in CHARTED if cloud != "layer_00/tokens"]
    shares = {-0.2219, -0.5229, -0.99999, -8}  # log10 of .6, .3, .1; 0 is in the lowest bin
    for row in rows:
        assert {k.split("/", 1)[1] for k in row if k.endswith("/_type")} == {
            f"{cloud}/_type" for cloud in clouds
        }
        for cloud in clouds:
            edges, counts = row[f"spectra/{cloud}/bins"], row[f"spectra/{cloud}/values"]
            assert (edges[0], edges[-1]) == (-8, 0)
            found = {edge for edge, n in zip(edges, counts, strict=False) if n == 1}
            assert found == {max(edge for edge in edges if edge <= share) for share in shares}
            assert sum(counts) == len(shares)


def test_the_summary_is_that_of_the_curves(sent):
    found = wandb_record.summary(sent.record)
    assert found["final/val/accuracy"] == 0.5
    for metric in HEADLINE:
        for cloud in CHARTED:
            values = [value_of(metric, cloud, step) for step in STEPS]
            key = f"isotropy/{metric}/{cloud}"
            assert found[f"final/{key}"] == pytest.approx(values[-1])
    own = [key for key in found if key.startswith("final/")]
    assert len(own) == 1 + len(HEADLINE) * len(CHARTED)


def test_final_is_of_the_kept_weights(tmp_path):
    """The run ended with the weights of step 4."""
    folder = tmp_path / "run"
    folder.mkdir()
    file = RecordFile(folder / "metrics.jsonl")
    curves = ("isotropy/lid/layer_01/tokens", "train_isotropy/lid/layer_01/tokens")
    for step, score in ((0, 0.9), (4, 0.6), (8, 0.5)):
        row = {"step": step, "time_s": 1.0, "val/accuracy": score}
        file.append(row | dict.fromkeys(curves, 10 * score))
    result = {"status": "finished", "monitor": "val/accuracy", "mode": "max", "headline": ["lid"]}
    write_result(folder, result | {"selected_step": 4})
    assert summary(folder) == {"final/val/accuracy": 0.6, f"final/{curves[0]}": 6.0}
