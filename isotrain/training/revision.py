"""What a run reads: its task, its source, and the revision of both, which names its folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from isotrain.config.compose import plain, task_name
from isotrain.config.parts import make
from isotrain.encoders.on_disk import digest_of_folder
from isotrain.encoders.start import start_file
from isotrain.runs.files import sha256_of
from isotrain.tasks.data.sources import SHARES, HubSource, PartedSource, PathSource, Source

if TYPE_CHECKING:  # torch is not needed to name a run
    from isotrain.tasks.base import Task


def task_of(cfg: DictConfig) -> "Task":
    """The task of a run; one that takes a name has that of the run's folder."""
    from isotrain.tasks.base import Task

    if "name" in cfg.task:
        cfg = cfg.copy()
        cfg.task.name = task_name(plain(cfg))
    task: Task = make(cfg.task, Task)
    return task


def source_of(cfg: DictConfig) -> Source:
    """The source of a run: `data.path`, else `data.hub`, else `source`.

    Raises:
        ValueError: two of them, or an option of one that is not chosen.
    """
    data = cfg.data
    hub_keys = [f"data.{key}" for key in ("hub", "name", "revision") if data[key]]
    if hub_keys and (data.path or not data.hub):
        raise ValueError(
            f"{', '.join(hub_keys)} choose a data set of the hub, and "
            + ("data.path a file; give one of them" if data.path else "data.hub=ID is not given")
        )
    shares, seed = list(data.split), data.split_seed
    if data.path:
        return PathSource(data.path, shares, seed)
    if data.hub:
        return HubSource(shares, seed, data.hub, data.name, data.revision)
    source: Source = make(cfg.source, Source)
    if isinstance(source, HubSource):
        PartedSource.__init__(source, shares, seed)
    elif (shares, seed) != ([*SHARES], 0):
        raise ValueError(
            "data.split and data.split_seed draw splits of data.path, data.hub and source=hub; "
            f"{type(source).__name__} has its own; leave them out"
        )
    return source


def revision(cfg: DictConfig) -> str:
    """Revision of all inputs of a run: data sets, `init_from`, the encoder's folder.

    Reads no examples.
    """
    source, task = source_of(cfg), task_of(cfg)
    parts = [*dict.fromkeys(map(source.revision_of, task.data_sets))]
    if start := start_file(cfg.init_from, cfg.encoder):
        parts.append(f"init_from {sha256_of(start)[:12]}")
    if (folder := Path(str(cfg.encoder.get("name")))).is_dir():
        parts.append(f"encoder {digest_of_folder(folder)[:12]}")
    return "; ".join(parts)
