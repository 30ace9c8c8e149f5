"""Frozen copy of a run's initial encoder, a reference for objectives."""

from copy import deepcopy

import torch

from isotrain.encoders.base import Encoder
from isotrain.types import Batch, ModelOutput, Pooling, SiteEmbeddings


class FrozenStart:
    """A copy of an encoder in evaluation mode, pooled: no isotropy layer, no head, no gradient.

    Not a module, so that it is in no optimizer, checkpoint or export. It takes as much memory as
    the weights of the encoder. A resumed run builds its encoder from the initial weights before
    the checkpoint is loaded, and so has the same copy.
    """

    def __init__(self, encoder: Encoder, pooling: Pooling) -> None:
        self.encoder = deepcopy(encoder).eval().requires_grad_(False)
        self.pooling = pooling

    @torch.no_grad()
    def __call__(self, batch: Batch) -> ModelOutput:
        """Hidden states and pooled embeddings of a batch, on its device; `before` is `pooled`."""
        states = self.encoder.to(batch.labels.device)(batch, {})
        pooled_BPD = self.pooling(states.last, batch)
        rows_ND = pooled_BPD.flatten(0, 1)
        around = {"pooled": SiteEmbeddings(rows_ND, rows_ND, batch.index, batch.labels)}
        return ModelOutput(states.hidden_states, pooled_BPD, pooled_BPD[:, 0], around)
