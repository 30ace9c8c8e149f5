"""The revision of what a run reads, which names its folder together with its configuration."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from isotrain.encoders.on_disk import digest_of_folder
from isotrain.encoders.start import start_file
from isotrain.runs.files import sha256_of


def data_revision(cfg: DictConfig) -> str:
    """Revision of the task's data sets in the source; reads no examples."""
    nodes = (cfg.source, cfg.task)
    source, task = (instantiate(node, _partial_=True, _convert_="all")() for node in nodes)
    return "; ".join(dict.fromkeys(map(source.revision_of, task.data_sets)))


def revision(cfg: DictConfig) -> str:
    """Revision of all inputs of a run: data sets, `init_from`, the encoder's folder."""
    parts = [data_revision(cfg)]
    if start := start_file(cfg.init_from, cfg.encoder):
        parts.append(f"init_from {sha256_of(start)[:12]}")
    if (folder := Path(str(cfg.encoder.get("name")))).is_dir():
        parts.append(f"encoder {digest_of_folder(folder)[:12]}")
    return "; ".join(parts)
