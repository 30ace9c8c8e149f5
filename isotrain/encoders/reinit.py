"""Re-initialise the top blocks of an encoder."""

from __future__ import annotations

from isotrain.encoders.base import Encoder


def reinit_blocks(encoder: Encoder, n_blocks: int) -> None:
    """Give the top `n_blocks` blocks the random weights that training from scratch starts with.

    The architecture's own initialiser draws them from torch's global random state; every other
    tensor keeps its bits. Zhang et al. (2021) try 1 to 6 blocks, against unstable fine-tuning.

    Raises:
        ValueError: the encoder does not have that many blocks, or is no transformers model.

    >>> import torch
    >>> from isotrain.encoders.tiny import build_tiny
    >>> encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    >>> before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    >>> reinit_blocks(encoder, 1)
    >>> {name.split(".")[3] for name, p in encoder.named_parameters() if not p.equal(before[name])}
    {'2'}
    """
    if not 0 <= n_blocks <= encoder.n_blocks:
        raise ValueError(
            f"training.reinit_blocks must lie in 0 to {encoder.n_blocks} for this encoder, "
            f"got {n_blocks}"
        )
    if n_blocks == 0:
        return
    model = encoder.model
    if model is None:
        raise ValueError(
            "training.reinit_blocks needs the initialiser of a transformers model, which "
            f"{type(encoder).__name__} does not have; use training.reinit_blocks=0"
        )
    # transformers draws what is not marked as initialised, each module by its own rules, some of
    # which stand in the modules around it; that is how it fills in weights a checkpoint lacks.
    top = encoder.blocks[encoder.n_blocks - n_blocks :]
    fresh = {id(tensor) for block in top for tensor in (*block.parameters(), *block.buffers())}
    for tensor in (*model.parameters(), *model.buffers()):
        tensor._is_hf_initialized = id(tensor) not in fresh
    for module in model.modules():
        module._is_hf_initialized = False
    model.initialize_weights()
