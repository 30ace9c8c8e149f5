"""The isotropy of every layer of a transformers model, in any training loop. N embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.geometry.rows import wide
from isotrain.metrics.suite import named, needs
from isotrain.plugins.hidden_states import backbone_of, only_looking, recorded
from isotrain.plugins.text_rows import examples_of
from isotrain.runs.keys import VIEWS, CurveKey
from isotrain.training.data import collate
from isotrain.training.monitor.measurement import Measurement
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.types import ModelOutput

METRICS = ("isoscore_corrected", "mean_cosine")


class LayerIsotropy:
    """Returns, at each call, the current `isotropy/<metric>/layer_LL/<view>` of a model.

    The hidden states of the transformers model in `model` are computed in evaluation mode, in
    float32 at least, without padding tokens. Each layer and view is measured on at most `max_rows`
    embeddings, those with the smallest hash of (text, position): the same ones at each call,
    counted by `isotropy/n_rows/...`. The model's modes, hooks and random generators are restored.

    Embeddings with a NaN are excluded and counted. A metric that is undefined on these embeddings
    is skipped with one warning. Metrics that need `reference` compare with the first call.

    Args:
        model: a transformers model, or a module that holds one.
        rows: texts, pairs of texts, or tokenised examples (see `examples_of`), as a list or column.
        tokenizer: of the texts; not needed for tokenised examples.
        metrics: names of files in `isotrain.metrics` and functions `[N, D] -> scalar`, or functions
            by name.
        views: of each layer: cls, tokens, mean.
        max_rows: most embeddings per layer and view, max_rows·D·4 bytes each.
        labels: class or score of each text, for metrics that need them.
        batch_size: texts per forward pass.
        max_length: most tokens per text.
        autocast: returns the context manager of each forward pass.

    Raises:
        ValueError: no transformers model, an unknown metric or view, a metric that cannot have what
            it needs, or unusable rows.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> tiny = build_tiny(width=8, n_blocks=1, n_heads=1)
    >>> texts = ["a dog", "two cats", "a bird"]
    >>> isotropy = LayerIsotropy(tiny.model, texts, tiny.tokenizer, ["mean_cosine"], ["mean"])
    >>> [key for key in isotropy() if "mean_cosine" in key]
    ['isotropy/mean_cosine/layer_00/mean', 'isotropy/mean_cosine/layer_01/mean']
    """

    def __init__(
        self,
        model: nn.Module,
        rows: Iterable[Any],
        tokenizer: Any = None,
        metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = METRICS,
        views: Sequence[str] = VIEWS,
        max_rows: int = 2048,
        labels: Sequence[float] | None = None,
        batch_size: int = 32,
        max_length: int = 128,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        if not views or set(views) - set(VIEWS):
            raise ValueError(f"views are some of {', '.join(VIEWS)}, got {list(views)}")
        functions = named(metrics)
        for name, function in functions.items():
            need = needs(function)
            if need == "positives" or (need == "labels" and labels is None):
                fix = "pass labels=, one per text" if need == "labels" else "leave it out"
                raise ValueError(f"{name} needs {need}, which texts alone do not have; {fix}")
        backbone_of(model)  # or it is refused now
        self.model, self.views, self.max_rows = model, tuple(views), max_rows
        self.examples, self.has_segments = examples_of(rows, tokenizer, max_length, labels)
        self.batch_size, self.autocast = batch_size, autocast
        self.measure = Measurement(functions)
        self.reference: dict[str, Tensor] | None = None  # embeddings of each cloud

    def __call__(self) -> dict[str, float]:
        """The current values, by key."""
        clouds = list(self._rows().clouds())
        if self.reference is None:
            compares = self.measure.compares
            self.reference = {cloud.name: cloud.x_ND for cloud in clouds if compares}
        values: dict[str, float] = {}
        for cloud in clouds:
            found = self.measure(cloud, self.reference.get(cloud.name))
            values |= {CurveKey(k, cloud.where, cloud.view).text: v for k, v in found.items()}
        return values

    def _rows(self) -> CloudSampler:
        """The sampled embeddings of the current model."""
        rows = CloudSampler(self.max_rows, self.views)
        backbone = backbone_of(self.model)
        device = next(backbone.parameters()).device
        nothing = torch.zeros(0)
        by_length = sorted(self.examples, key=lambda example: len(example.input_ids[0]))
        with only_looking(self.model), recorded(backbone) as states:
            for start in range(0, len(by_length), self.batch_size):
                batch = collate(by_length[start : start + self.batch_size], pad_id=0).to(device)
                segments = {"token_type_ids": batch.token_type_ids} if self.has_segments else {}
                states.clear()
                with self.autocast():
                    backbone(
                        input_ids=batch.input_ids, attention_mask=batch.attention_mask, **segments
                    )
                rows.offer(batch, ModelOutput(tuple(map(wide, states)), nothing, nothing))
        return rows
