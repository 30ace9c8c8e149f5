"""TensorBoard: the few scalars of `metrics.jsonl` as curves."""

from pathlib import Path

from pytorch_lightning.loggers import TensorBoardLogger


def build_tensorboard_logger(save_dir: str | Path, name: str) -> TensorBoardLogger:
    """A logger into `<save_dir>/tensorboard`; its path already shows `name`."""
    return TensorBoardLogger(str(save_dir), name="tensorboard", version="", default_hp_metric=False)
