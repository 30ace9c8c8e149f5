"""A script of somebody else's: `python lightning_script.py PACKAGE FOLDER OPTIONS`.

OPTIONS is JSON: the arguments of `run`. It prints what the tests compare, as JSON.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

PACKAGE = "lightning.pytorch" if sys.argv[1:2] == ["lightning"] else "pytorch_lightning"
pl = importlib.import_module(PACKAGE)

from isotrain.encoders.tiny import build_tiny  # noqa: E402
from isotrain.plugins import lightning_callbacks  # noqa: E402
from isotrain.transforms.cluster_pca import ClusterPCA  # noqa: E402

TEXTS = [f"the {a} {b} {v}" for a in ("old", "red") for b in ("dog", "cat") for v in "abc"] * 4
METRICS = ["mean_cosine", "isoscore", "cosine_drift", "label_silhouette"]


class Classifier(pl.LightningModule):
    """BERT, an isotropy layer on CLS, a head."""

    def __init__(self, layer=None, checkpoints=False, lr=1e-3):
        super().__init__()
        self.lr = lr
        torch.manual_seed(0)
        tiny = build_tiny(16, n_blocks=2, n_heads=2, dropout=0.0)
        self.bert, self.tokenizer = tiny.model, tiny.tokenizer
        self.isotropy = layer or ClusterPCA(16, n_clusters=2)
        self.head = nn.Linear(16, 2)
        if checkpoints:
            self.bert.activation_checkpointing_enable({"use_reentrant": False})

    def loss(self, batch):
        states = self.bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        return nn.functional.cross_entropy(self.head(self.isotropy(states[:, 0])), batch["labels"])

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def loader(module, size=8):
    """Batches of the texts, each with a label."""

    def collate(numbers):
        texts = [TEXTS[i] for i in numbers]
        batch = dict(module.tokenizer(texts, padding=True, return_tensors="pt"))
        return batch | {"labels": torch.tensor([i % 2 for i in numbers])}

    return DataLoader(range(len(TEXTS)), size, collate_fn=collate)


def run(
    folder,
    epochs=2,
    devices=1,
    patience=None,
    resume=False,
    wandb=False,
    lr=1e-3,
):
    """Fit, and what is left."""
    module = Classifier(lr=lr)
    callbacks = lightning_callbacks()
    monitor = callbacks.IsotropyMonitor(METRICS, views=["cls", "mean"], encoder="bert")
    saved = pl.callbacks.ModelCheckpoint(folder / "ckpt", save_last=True, enable_version_counter=0)
    others = [callbacks.FitLayers(), monitor, saved]
    if patience:
        watched = "isotropy/mean_cosine/layer_02/mean"
        others.append(
            pl.callbacks.EarlyStopping(watched, mode="max", min_delta=9, patience=patience)
        )
    loggers = [pl.loggers.CSVLogger(folder, "csv", "")]
    if wandb:
        loggers.append(pl.loggers.WandbLogger(save_dir=folder, offline=True))
    trainer = pl.Trainer(
        accelerator="cpu", devices=devices, max_epochs=epochs, callbacks=others, logger=loggers,
        enable_progress_bar=False, log_every_n_steps=1,
        enable_model_summary=False, strategy="ddp" if devices > 1 else "auto",
    )  # fmt: skip
    trainer.fit(
        module,
        loader(module),
        loader(module),
        ckpt_path=folder / "ckpt/last.ckpt" if resume else None,
    )
    queue = module.isotropy.queue
    if trainer.is_global_zero:
        seen = {
            "values": monitor.newest,
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "n_filled": int(queue.n_filled),
            "centre": module.isotropy.state_dict()["centre_KD"].tolist(),
            "imported": [m for m in ("lightning", "pytorch_lightning") if m in sys.modules],
        }
        print(json.dumps(seen))
        for logger in loggers[1:]:
            logger.experiment.finish()


if __name__ == "__main__":
    run(Path(sys.argv[2]), **json.loads(sys.argv[3]))
