"""The callbacks in a `LightningCLI`, by class path in the yaml of docs/lightning.md."""

import csv
import re

import pytest
import yaml

from tests.processes import ROOT, printed_by

PAGE = ROOT / "docs" / "lightning.md"
SCRIPT = """
import importlib
import sys

from tests.plugins.lightning_script import PACKAGE, TEXTS, Classifier, loader

sys.argv = ["train.py", "fit", "--config", "config.yaml"]


class Mine(Classifier):
    def __init__(self, lr: float = 1e-3):
        super().__init__(lr=lr)

    def train_dataloader(self):
        return loader(self)

    val_dataloader = train_dataloader


cli = importlib.import_module(f"{PACKAGE}.cli").LightningCLI(Mine)
assert int(cli.model.isotropy.queue.n_filled) == 2 * len(TEXTS), "FitLayers observed each example"
"""


@pytest.mark.slow
def test_a_yaml_adds_the_callbacks_to_a_plain_module(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert text.count("isotrain.plugins.lightning.") == 2
    config = yaml.safe_load(text)
    logger = {
        "class_path": "lightning.pytorch.loggers.CSVLogger",
        "init_args": {"save_dir": "logs"},
    }
    config["trainer"] |= {"max_epochs": 2, "accelerator": "cpu", "logger": logger}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config | {"model": {"lr": 1e-2}}))
    printed_by("-W", "ignore", "-c", SCRIPT, "lightning", cwd=tmp_path, PYTHONPATH=str(ROOT))
    (file,) = tmp_path.rglob("metrics.csv")
    with file.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["val/loss"]]
    assert len(rows) == 2
    for metric in ("mean_cosine", "isoscore_corrected"):
        for layer in (1, 2):
            first, second = (row[f"isotropy/{metric}/layer_0{layer}/cls"] for row in rows)
            assert -1 <= float(first) <= 1
            assert first != second, "the encoder has trained"
