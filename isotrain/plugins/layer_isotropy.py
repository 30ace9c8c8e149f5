"""The isotropy of every layer of a transformers model, in any training loop.

A sequences, T tokens, N embeddings, D dimensions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.encoders.hidden_states import (
    arguments_of,
    backbone_of,
    check_recorded_states,
    recorded,
)
from isotrain.encoders.trial import in_evaluation
from isotrain.geometry.rows import wide
from isotrain.metrics.suite import needs
from isotrain.runs.keys import MEASURED, CurveKey
from isotrain.tasks.data.encoding import collate
from isotrain.training.monitor.hooks import METRICS, checked_metrics
from isotrain.training.monitor.measurement import Measurement
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.types import Example, ModelOutput


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
        views: of each layer: cls, tokens, mean; or last, the last token.
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
        views: Sequence[str] = MEASURED,
        max_rows: int = 2048,
        labels: Sequence[float] | None = None,
        batch_size: int = 32,
        max_length: int = 128,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        functions = checked_metrics(metrics, views)
        supervised = [name for name, function in functions.items() if needs(function) == "labels"]
        if supervised and labels is None:
            raise ValueError(f"{supervised[0]} needs labels; pass labels=, one per text")
        self.model, self.views, self.max_rows = model, tuple(views), max_rows
        self.examples, self.has_segments = examples_of(rows, tokenizer, max_length, labels)
        self.batch_size, self.autocast = batch_size, autocast
        self.measure = Measurement(functions)
        self.reference: dict[str, Tensor] | None = None  # embeddings of each cloud
        longest = max((example.input_ids[0] for example in self.examples), key=len)
        check_recorded_states(model, backbone_of(model), longest, self.has_segments)

    def __call__(self) -> dict[str, float]:
        """The current values, by key."""
        clouds = list(self._sample().clouds())
        if self.reference is None:
            compares = self.measure.compares
            self.reference = {cloud.name: cloud.x_ND for cloud in clouds if compares}
        values: dict[str, float] = {}
        for cloud in clouds:
            results = self.measure(cloud, self.reference.get(cloud.name))
            values |= {CurveKey(k, cloud.where, cloud.view).text: v for k, v in results.items()}
        return values

    def _sample(self) -> CloudSampler:
        """The sampled embeddings; modes of the model and generators are restored."""
        sampler = CloudSampler(self.max_rows, self.views)
        backbone = backbone_of(self.model)
        device = next(backbone.parameters()).device
        empty = torch.zeros(0)
        by_length = sorted(self.examples, key=lambda example: len(example.input_ids[0]))
        with torch.no_grad(), in_evaluation(self.model), recorded(backbone) as states:
            for start in range(0, len(by_length), self.batch_size):
                batch = collate(by_length[start : start + self.batch_size], pad_id=0).to(device)
                states.clear()
                with self.autocast():
                    backbone(**arguments_of(batch, self.has_segments))
                n_tokens = batch.input_ids.shape[1]
                hidden_states = tuple(wide(state_ATD[:, :n_tokens]) for state_ATD in states)
                sampler.offer(batch, ModelOutput(hidden_states, empty, empty))
        return sampler


def examples_of(
    rows: Iterable[Any], tokenizer: Any, max_length: int, labels: Sequence[float] | None = None
) -> tuple[list[Example], bool]:
    """Examples of one sequence each, and whether the model takes their segments.

    Args:
        rows: texts; pairs of texts, each one sequence; or tokenised examples, mappings with
            `input_ids` (and `attention_mask`, `token_type_ids`), whose pads are left out.
        tokenizer: of texts.
        max_length: tokens of a text at most.
        labels: class or score of each example.

    Raises:
        ValueError: a text instead of a list, or not exactly one label per example.
    """
    if isinstance(rows, str):
        raise ValueError(f"rows are a list of texts, got the text {rows!r}; pass [{rows!r}]")
    items = list(rows)
    if labels is not None and len(labels) != len(items):
        raise ValueError(f"labels are one a row, got {len(labels)} for {len(items)} rows")
    if not isinstance(items[0], Mapping):
        encoding = tokenizer(items, truncation=True, max_length=max_length)
        items = [{key: encoding[key][i] for key in encoding} for i in range(len(items))]
    examples = []
    for index, item in enumerate(items):
        mask = item.get("attention_mask", [1] * len(item["input_ids"]))
        columns = [item["input_ids"], item.get("token_type_ids", [0] * len(mask)), [0] * len(mask)]
        ids, segments, special = (
            [[int(x) for x, is_real in zip(column, mask, strict=True) if is_real]]
            for column in columns
        )
        label = 0 if labels is None else labels[index]
        examples.append(Example(ids, segments, special, None, label, index))
    return examples, "token_type_ids" in items[0]
