"""TensorBoard: the records of `metrics.jsonl` as curves, also after a resume."""

from pathlib import Path

from pytorch_lightning.loggers import TensorBoardLogger

from isotrain.training.loggers.jsonl import ResumableLogger


class TensorBoardRun(ResumableLogger, TensorBoardLogger):
    """Lightning's logger; after a resume it gets every record again.

    One event file per process: Lightning closes it after training and opens another for testing,
    and TensorBoard, which reads files by name, may then take the older one for a restart.
    """

    def finalize(self, status: str) -> None:
        """Flush; `close` closes."""
        self.save()

    def close(self, failed: bool) -> None:
        """Close the file."""
        self.experiment.close()


def build_tensorboard_logger(save_dir: str | Path, name: str) -> TensorBoardRun:
    """A logger into `<save_dir>/tensorboard`; its path already shows `name`.

    An earlier process may have been killed before flushing its events. Its events are purged, and
    the kept records are sent again.
    """
    return TensorBoardRun(
        str(save_dir), name="tensorboard", version="", default_hp_metric=False, purge_step=0
    )
