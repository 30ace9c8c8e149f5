"""Instantiate parts from configuration nodes, and check how training calls them. No Lightning."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from isotrain.arguments import check_kind
from isotrain.config.signatures import load, raised_at
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
    """Instantiate the part of a node, outside of Hydra, which would wrap its exceptions.

    Raises:
        ValueError: the module cannot be imported, keys are wrong, the constructor fails, or a part
            lacks the base class of its group; node, file and line are named.
    """
    path, target = node._get_full_key(""), node["_target_"]
    try:
        part = instantiate(node, _partial_=True, _convert_="all")(**arguments)
    except (ValueError, OSError):  # their messages say what to change
        raise
    except Exception as error:  # a user's part may raise anything
        if isinstance(error, InstantiationException):
            load(str(target))  # shows why a module cannot be imported, which Hydra hides
        told = error if isinstance(error, TypeError | InstantiationException) else repr(error)
        raise ValueError(
            f"{path} cannot be made: {told}{raised_at(error)}; give the keys that {target} takes"
        ) from error
    check_kind(path, part, CONTRACTS.get(path.partition(".")[0], object))
    return part
