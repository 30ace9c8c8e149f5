"""Parameter groups with their weight decay and learning rate factors, and parameter counts."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import depths


def parameter_groups(
    module: nn.Module,
    encoder: Encoder | None = None,
    layer_decay: float = 1.0,
    head_lr_factor: float = 1.0,
    matrices: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Parameter groups: matrices with weight decay, vectors (biases, LayerNorm) without.

    Matrices take the optimizer's weight decay. `lr_factor` multiplies the optimizer's learning
    rate: layer_decay^(L − l) for block l of L, layer_decay^L for the embeddings, 1 after the last
    block. Parameters of `module` outside its part `encoder` are in separate groups, marked
    `is_head`. Parameters whose id is in `matrices` are in separate groups, marked `is_matrix` (for
    Muon).

    >>> groups = parameter_groups(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
    >>> [(len(g["params"]), g["is_head"]) for g in groups]
    [(2, False), (2, False)]
    """
    n_above: dict[int, int] = {}  # number of blocks above
    if encoder is not None:
        parameters = dict(encoder.named_parameters())
        for name, depth in depths(encoder).items():
            n_above[id(parameters[name])] = max(0, encoder.n_blocks - depth)
    parameters_of: dict[tuple[bool, int, bool, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        is_head = encoder is not None and id(parameter) not in n_above
        depth = n_above.get(id(parameter), 0) if layer_decay < 1 else 0
        is_vector = parameter.ndim < 2 or ".ia3_l." in name  # stored as [D, 1], initialised to 1
        parameters_of[is_head, -depth, is_vector, id(parameter) in matrices].append(parameter)
    groups = []
    for is_head, depth, is_vector, is_matrix in sorted(parameters_of):
        group = {
            "params": parameters_of[is_head, depth, is_vector, is_matrix],
            "is_head": is_head,
            "lr_factor": head_lr_factor if is_head else layer_decay**-depth,
        } | ({"is_matrix": True} if is_matrix else {})
        groups.append(group | ({"weight_decay": 0.0} if is_vector else {}))
    return groups


def matrices_of_blocks(encoder: Encoder) -> set[int]:
    """Ids of the 2-D parameters of an encoder's blocks, without embedding tables."""
    tables = {id(module.weight) for module in encoder.modules() if isinstance(module, nn.Embedding)}
    block_parameters: list[tuple[str, Tensor]] = [
        pair for block in encoder.blocks for pair in block.named_parameters()
    ]
    return {id(p) for name, p in block_parameters if p.ndim == 2 and ".ia3_l." not in name} - tables


def count_parameters(module: nn.Module) -> dict[str, int]:
    """Number of parameters, and of trainable ones."""
    sizes = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return {"total": sum(n for n, _ in sizes), "trainable": sum(n for n, trains in sizes if trains)}
