"""From a node of the configuration to its part. Imports no Lightning: analyses use it too."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from isotrain.arguments import check_kind
from isotrain.encoders.base import Encoder
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.tasks.data.sources import Source
from isotrain.transforms.base import RowTransform

CONTRACTS: dict[str, type] = {
    "task": Task,
    "encoder": Encoder,
    "isotropy": RowTransform,
    "objective": Objective,
    "source": Source,
}


def made(node: DictConfig, **arguments: Any) -> Any:
    """The part of a node, called outside of Hydra, which would wrap what it raises.

    Raises:
        ValueError: wrong keys, or a part that lacks the base class of its group; the node is named.
    """
    path, target = node._get_full_key(""), node["_target_"]
    try:
        part = instantiate(node, _partial_=True, _convert_="all")(**arguments)
    except (TypeError, InstantiationException) as error:
        raise ValueError(
            f"{path} cannot be made: {error}; give the keys that {target} takes"
        ) from error
    check_kind(path, part, CONTRACTS.get(path.partition(".")[0], object))
    return part
