"""Isotropy of every layer at each validation, as hooks of a Lightning callback.

Imports neither `lightning` nor `pytorch_lightning`: `isotrain.plugins` has a callback for each.
A sequences, T tokens, D width, N embeddings.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from isotrain.encoders.hidden_states import backbone_of, check_recorded_states, recorded
from isotrain.geometry.rows import hash_ids, wide
from isotrain.metrics.suite import functions_by_name, needs
from isotrain.runs.keys import DEV, MEASURED, VIEWS, CurveKey
from isotrain.training.monitor.measurement import Measurement
from isotrain.training.monitor.sampling import CloudSampler, SampledCloud
from isotrain.types import Batch, ModelOutput

METRICS = ("isoscore_corrected", "mean_cosine")
LABELS = ("labels", "label")  # keys of a batch


class MonitorHooks:
    """Log `isotropy/<metric>/layer_LL/<view>` of the transformer inside a LightningModule.

    The hidden states are those of the module's own validation batches (of the first dataloader),
    recorded at the encoder's blocks by hooks, without pads. Layer 0 is the input of block 1, layer
    l the output of block l. Each layer and view is measured on at most `max_rows` embeddings, those
    with the smallest hash of (token ids, position): the same ones at each evaluation and for any
    batch size. A sampler that repeats examples over processes repeats their embeddings.
    `isotropy/n_rows/...` is their number. Values are logged by the
    module's `log_dict`, so loggers, `EarlyStopping` and `ModelCheckpoint` know them. Lightning's
    sanity check is not measured.

    An embedding with a NaN is excluded and counted. A metric that is undefined on these embeddings
    is skipped with one warning. Metrics that need `reference` compare with the first evaluation,
    also after a resume; use a new monitor for another model. Memory is `max_rows`·D·4 bytes per
    layer and view.

    Args:
        metrics: names of files in `isotrain.metrics` and functions `[N, D] -> scalar`, or functions
            by name; those that need labels get `batch["labels"]` or `batch["label"]`.
        views: of each layer: cls (first token), tokens (every token but pads), mean (of tokens).
        max_rows: most embeddings per layer and view.
        encoder: name of the module that holds the transformers model, such as `model.bert`; None =
            the only one in the module.

    Raises:
        ValueError: an unknown metric or view, or one that needs `positives`; at the first batch: no
            transformers model, no labels for a metric that needs them, an encoder that does
            not run in `validation_step` or runs compiled without its hooks.
    """

    def __init__(
        self,
        metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = METRICS,
        views: Sequence[str] = MEASURED,
        max_rows: int = 1024,
        encoder: str | None = None,
    ) -> None:
        super().__init__()
        self.measure = Measurement(checked_metrics(metrics, views))
        if max_rows < 2:
            raise ValueError(f"max_rows must be 2 or more embeddings, got {max_rows}")
        self.views, self.max_rows, self.encoder = tuple(views), max_rows, encoder
        self.newest: dict[str, float] = {}  # values of the latest evaluation, on rank 0
        self._rows: CloudSampler | None = None  # of the running evaluation
        self._reference: dict[str, tuple[Tensor, Tensor]] = {}  # ids, embeddings of each cloud
        self._hooks = ExitStack()
        self._labels: Any = None  # of the running batch
        self._is_open = self._is_tried = False
        self._newest: tuple[Tensor, bool] | None = None  # a text, and whether it has segments
        self._warned = False  # of an evaluation on other examples than the first one
        self._n_passes = 0  # of the encoder, in the running batch

    def state_dict(self) -> dict[str, Any]:
        """The reference embeddings, so that a resumed run compares with the same ones."""
        return {"reference": {name: list(pair) for name, pair in self._reference.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the reference of the checkpoint."""
        self._reference = {name: tuple(pair) for name, pair in state_dict["reference"].items()}

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Start an empty sample, and record the encoder's hidden states."""
        self._close()
        if not trainer.sanity_checking:
            self._rows = self.sampler(pl_module)
            self.listen(pl_module)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Attribute the encoder's forward passes to this batch."""
        self._is_open, self._n_passes = dataloader_idx == 0, 0
        fields = batch if isinstance(batch, Mapping) else {}
        self._labels = next((fields[key] for key in LABELS if key in fields), None)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Check that the batch was recorded, and once that its hidden states are the model's."""
        if self._rows is not None and self._is_open and not self._n_passes:
            raise ValueError(
                "IsotropyMonitor records hidden states by hooks, and they saw no forward pass of "
                f"{type(self._backbone(pl_module)).__name__} in validation_step; run the encoder "
                "there, leave it uncompiled, or name another module by encoder="
            )
        self._is_open = False
        if self._rows is not None and self._newest is not None and not self._is_tried:
            self._is_tried = True
            ids, has_segments = self._newest
            check_recorded_states(pl_module, self._backbone(pl_module), ids.tolist(), has_segments)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure the sample, and log every value."""
        sampler = self._rows
        self._close()
        if sampler is None:
            return
        if trainer.world_size > 1:
            sampler.exchange()
        if not self._reference and self.measure.compares:
            # in every process: each writes its part of a checkpoint
            self._reference = {cloud.name: (cloud.id_N, cloud.x_ND) for cloud in sampler.clouds()}
        if trainer.is_global_zero:
            self.newest = self.values(sampler, pl_module)
        self.report(trainer, pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Discard an incomplete evaluation."""
        self._close()

    def sampler(self, module: Any) -> CloudSampler:
        """The empty sample of an evaluation."""
        return CloudSampler(self.max_rows, self.views)

    def listen(self, module: Any) -> None:
        """Offer each forward pass of the encoder to the sample, until the evaluation ends."""
        backbone = self._backbone(module)
        states = self._hooks.enter_context(recorded(backbone))
        forward_signature = signature(backbone.forward)

        @_disable_dynamo
        def leave(_module: nn.Module, args: Any, kwargs: dict[str, Any], _output: Any) -> None:
            arguments = forward_signature.bind(*args, **kwargs).arguments
            pass_states = tuple(states)
            states.clear()
            if self._is_open:
                self._n_passes += 1
                self._offer(arguments, pass_states)

        hook = backbone.register_forward_hook(leave, with_kwargs=True)
        self._hooks.callback(hook.remove)

    @torch.no_grad()
    def values(self, rows: CloudSampler, module: Any) -> dict[str, float]:
        """Every value of an evaluation, by key."""
        values: dict[str, float] = {}
        for cloud in rows.clouds():
            values |= self.cloud_values(cloud, DEV)
        return values

    def cloud_values(self, cloud: SampledCloud, of: str) -> dict[str, float]:
        """Values of one cloud, by key."""
        id_N, reference_ND = self._reference.get(cloud.name, (None, None))
        is_comparable = of == DEV and id_N is not None and torch.equal(id_N, cloud.id_N)
        if of == DEV and id_N is not None and not is_comparable and not self._warned:
            self._warned = True
            warnings.warn(
                "metrics that compare with the first evaluation are left out: this one has other "
                "examples; validate on the same examples each time",
                stacklevel=2,
            )
        values = self.measure(cloud, reference_ND if is_comparable else None)
        return {CurveKey(k, cloud.where, cloud.view, of).text: v for k, v in values.items()}

    def report(self, trainer: Any, module: Any) -> None:
        """Log the newest values, in every process: callbacks that watch one run in all of them."""
        values = trainer.strategy.broadcast(self.newest)
        module.log_dict({key: float(value) for key, value in values.items()}, sync_dist=True)

    def _backbone(self, module: Any) -> nn.Module:
        if self.encoder is None:
            return backbone_of(module)
        try:
            return backbone_of(module.get_submodule(self.encoder))
        except AttributeError as error:
            names = ", ".join(name for name, _ in module.named_children())
            raise ValueError(
                f"encoder={self.encoder!r} names no module; {type(module).__name__} has {names}"
            ) from error

    @torch.no_grad()
    def _offer(
        self,
        arguments: Mapping[str, Any],
        states: Sequence[Tensor],
    ) -> None:
        """Offer a forward pass to the sample; an example is named by its token ids."""
        assert self._rows is not None
        ids_AT = arguments.get("input_ids")
        if ids_AT is None:
            raise ValueError(
                "the monitor names embeddings by token ids, and the encoder got none; give it "
                "input_ids, not inputs_embeds"
            )
        mask_AT = arguments.get("attention_mask")
        mask_AT = torch.ones_like(ids_AT) if mask_AT is None else mask_AT.long()
        states = [state_ATD[:, : ids_AT.shape[1]] for state_ATD in states]
        if not bool(mask_AT[:, 0].all()):  # pads on the left: tokens first
            order_AT = mask_AT.argsort(dim=1, descending=True, stable=True)
            ids_AT, mask_AT = ids_AT.gather(1, order_AT), mask_AT.gather(1, order_AT)
            states = [s.gather(1, order_AT[:, :, None].expand_as(s)) for s in states]
        labels_A = self._labels_of(len(ids_AT))
        zeros_AT, index_A = torch.zeros_like(ids_AT), text_hashes(ids_AT, mask_AT)
        batch = Batch(ids_AT, mask_AT, zeros_AT, zeros_AT, labels_A.to(ids_AT.device), index_A)
        empty = torch.zeros(0)
        wide_states = tuple(wide(state_ATD) for state_ATD in states)
        self._rows.offer(batch, ModelOutput(wide_states, empty, empty))
        self._newest = ids_AT[0][mask_AT[0].bool()], "token_type_ids" in arguments

    def _labels_of(self, n: int) -> Tensor:
        """A label of each sequence; zeros if no metric needs them."""
        labels = self._labels
        if isinstance(labels, Tensor) and labels.shape == (n,):
            return labels
        if metrics := [name for name, need in self.measure.needs.items() if need == "labels"]:
            shape = list(labels.shape) if isinstance(labels, Tensor) else "none"
            raise ValueError(
                f"{metrics[0]} needs a label per sequence, [{n}], in batch['labels'], got {shape}; "
                "leave the metric out, or add them to the batches"
            )
        return torch.zeros(n, dtype=torch.long)

    def _close(self) -> None:
        self._hooks.close()
        self._rows, self._is_open = None, False


def checked_metrics(
    metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    views: Sequence[str],
) -> dict[str, Callable[..., Any]]:
    """Metrics by name.

    Raises:
        ValueError: an unknown metric or view, or a metric that needs `positives`.
    """
    if not views or set(views) - set(VIEWS):
        raise ValueError(f"views are some of {', '.join(VIEWS)}, got {list(views)}")
    functions = functions_by_name([metrics] if isinstance(metrics, str) else metrics)
    for name, function in functions.items():
        if needs(function) == "positives":
            raise ValueError(f"{name} needs positives, which texts alone do not have; leave it out")
    return functions


def text_hashes(ids_AT: Tensor, mask_AT: Tensor) -> Tensor:
    """A number `[A]` below 2^42 for each sequence: of its token ids, whatever its pads.

    >>> ids = torch.tensor([[5, 6, 0], [6, 5, 0], [5, 6, 1]])
    >>> mask = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]])
    >>> len(set(text_hashes(ids, mask).tolist()))
    3
    >>> bool((text_hashes(ids, mask)[0] == text_hashes(ids[:1, :2], mask[:1, :2])).all())
    True
    """
    position_T = torch.arange(ids_AT.shape[1], device=ids_AT.device)
    hashes_AT = hash_ids(ids_AT.long() + (position_T << 32))
    return hash_ids((hashes_AT * mask_AT.long()).sum(dim=1)) >> 21
