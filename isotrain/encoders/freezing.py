"""What does not train: each function freezes parts of an encoder in place."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from isotrain.types import Encoder


def freeze_nothing(encoder: Encoder) -> None:
    """Everything trains."""


def freeze_embeddings(encoder: Encoder) -> None:
    """The embedding layer stays as it was pre-trained."""
    _freeze([encoder.embeddings])


def freeze_first_n(encoder: Encoder, n_blocks: int) -> None:
    """The embedding layer and blocks 1 to `n_blocks` stay as they were pre-trained.

    Raises:
        ValueError: the encoder does not have that many blocks.
    """
    if not 0 <= n_blocks <= encoder.n_blocks:
        raise ValueError(
            f"freezing.n_blocks must lie in 0 to {encoder.n_blocks} for this encoder, "
            f"got {n_blocks}"
        )
    _freeze([encoder.embeddings, *encoder.blocks[:n_blocks]])


def freeze_encoder(encoder: Encoder) -> None:
    """Only the head trains."""
    assert isinstance(encoder, nn.Module)
    _freeze([encoder])


def _freeze(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        module.requires_grad_(False)
