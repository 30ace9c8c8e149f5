"""Instantiate parts from configuration nodes, and check how training calls them. No Lightning."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from isotrain.arguments import check_kind
from isotrain.config.signatures import load, raised_at
from isotrain.encoders.base import Encoder
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.tasks.data.sources import Source
from isotrain.transforms.base import RowTransform
from isotrain.transforms.fitted import FittedTransform

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


def check_calls(model: IsotropicModel, task: Task, objectives: Mapping[str, Objective]) -> None:
    """Check that the members of parts take the arguments with which training calls them.

    Raises:
        ValueError: one does not.
    """
    for part, members in _calls_of(model, task, objectives).items():
        for member, arguments in members:
            _check_call(part, member, arguments)


def _calls_of(
    model: IsotropicModel, task: Task, objectives: Mapping[str, Objective]
) -> dict[str, list[tuple[Callable[..., Any], str]]]:
    """Members and their arguments, by key of the part; keyword arguments end in `=`."""
    calls: dict[str, list[tuple[Callable[..., Any], str]]] = {
        "task": [(task.loss, "logits, labels"), (task.predictions, "logits"), (task.metrics, "")]
    }
    for name, objective in objectives.items():
        calls[f"objective={name}"] = [
            *((member, "views, labels") for member in (objective.forward, objective.observe)),
            *((member, "n_vectors") for member in (objective.check, objective.n_remembered)),
            *((objective.asks_for_pass, "epoch"), (objective.prepare, "epoch, reads")),
        ]
    layers: Any = model.transforms
    for site, layer in layers.items():
        labels = ", labels_N" if layer.reads_labels else ""
        calls[f"isotropy at {site}"] = [
            *((member, f"x_ND{labels}") for member in (layer.forward, layer.observe, layer.fit)),
            (layer.fit, ""),  # on the queue
        ]
        if isinstance(layer, FittedTransform):
            n_own = ", n_own=" if layer.of_clusters else ""
            named = ", labels_N=" if layer.reads_labels else ""
            calls[f"isotropy at {site}"] += [
                (layer.estimate, f"x_ND, to_freeze{n_own}{named}"),
                (layer.transform, "x_ND, stats, are_last"),
            ]
    return calls


def _check_call(part: str, member: Callable[..., Any], arguments: str) -> None:
    names = [name for name in arguments.split(", ") if name]
    named = {name[:-1]: None for name in names if name.endswith("=")}
    given = [name for name in names if not name.endswith("=")]
    try:
        signature(member).bind(*given, **named)
    except TypeError as error:
        raise ValueError(
            f"{part}: {member.__name__}{signature(member)} is called with ({arguments}): {error}; "
            f"let it take {arguments or 'no arguments'}"
        ) from error
