"""Forward passes of a training step: a batch to the outputs that the losses read."""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import nn

from isotrain.encoders.base import Encoder
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.types import Batch, ModelOutput, Pooling, SiteEmbeddings


class Views(NamedTuple):
    """Outputs of a batch."""

    passes: Sequence[ModelOutput]  # forward passes: the first has the task loss, and is measured
    start: ModelOutput | None = None  # what objectives with `reads_start` compare with


class Step(nn.Module):
    """A forward pass per view of the objectives, and the frozen start if one of them reads it.

    A subclass overrides `forward`, and `observe` if it keeps a state. Modules and buffers that it
    registers are stored in checkpoints.

    Args:
        model: with the weights before training.
        n_views: forward passes that the objectives need.
        reads_start: whether an objective compares with `Views.start`.
    """

    def __init__(self, model: IsotropicModel, n_views: int = 1, reads_start: bool = False) -> None:
        super().__init__()
        self.n_views = n_views
        self.start = FrozenStart(model.encoder, model.pooling) if reads_start else None

    def forward(self, model: IsotropicModel, batch: Batch) -> Views:
        """The views of a batch; the layers' queues get the embeddings of the first pass."""
        passes = [model(batch) for _ in range(self.n_views)]
        model.remember(passes[0])
        start = None if self.start is None else self.start(batch, next(model.parameters()))
        return Views(passes, start)

    def observe(self, model: IsotropicModel) -> None:
        """Once per optimizer step, after it: queues get the batch."""
        model.observe()


class FrozenStart:
    """A copy of an encoder in evaluation mode, pooled: no isotropy layer, no head, no gradient.

    Not a module, so that it is in no optimizer, checkpoint or export. It takes as much memory as
    the weights of the encoder. A resumed run builds its encoder from the initial weights before
    the checkpoint is loaded, and so has the same copy.
    """

    def __init__(self, encoder: Encoder, pooling: Pooling) -> None:
        self.encoder = deepcopy(encoder).eval().requires_grad_(False)
        self.pooling = pooling

    def __call__(self, batch: Batch, like: torch.Tensor) -> ModelOutput:
        """Hidden states and pooled embeddings of a batch, with weights of the type of `like`."""
        return pooled_output(self.encoder.to(like), self.pooling, batch)


@torch.no_grad()
def pooled_output(encoder: Encoder, pooling: Pooling, batch: Batch) -> ModelOutput:
    """Hidden states and pooled embeddings without isotropy layers; `before` is `pooled`."""
    states = encoder(batch, {})
    pooled_BPD = pooling(states.last, batch)
    x_ND = pooled_BPD.flatten(0, 1)
    site_embeddings = {"pooled": SiteEmbeddings(x_ND, x_ND, batch.index, batch.labels)}
    return ModelOutput(states.hidden_states, pooled_BPD, pooled_BPD[:, 0], site_embeddings)
