"""Every metric as a `torchmetrics.Metric` that collects embeddings over batches and processes.

N embeddings, D width.
"""

from collections.abc import Callable
from functools import partialmethod
from inspect import signature
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, distributed
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

import isotrain
from isotrain.arguments import checked, invalid
from isotrain.geometry.rows import hash_ids
from isotrain.metrics.isoscore_star import isoscore_star_of_rows
from isotrain.metrics.suite import needs


class EmbeddingMetric(Metric):
    """A metric of all embeddings passed to `update`, over batches and processes.

    `compute()` is the function of them, a scalar or a dict. Embedding i of process r of W has
    number i·W + r. So the sample and its order equal those of one process that reads all embeddings
    in the order of a `DistributedSampler`. A process without embeddings calls `update(x[:0])`.

    Args:
        function: `[N, D] -> scalar or dict`. An argument named labels, groups, reference or
            positives is collected as well.
        max_rows: None keeps all embeddings. A number keeps a uniform sample of that size: those
            whose numbers have the lowest hash, the same for the same order. A function with an
            argument of that name gets it too.
        options: arguments of the function, and those of every `torchmetrics.Metric`.

    Raises:
        ValueError: an illegal option. From `update`, a missing input, or one of another length.
            From `compute`, a metric that is not defined for the embeddings.

    >>> from isotrain import mean_cosine
    >>> metric = EmbeddingMetric(mean_cosine)
    >>> metric.update(torch.tensor([[1.0, 0.0]]))
    >>> metric.update(torch.tensor([[0.0, 2.0]]))
    >>> float(metric.compute())
    0.0
    """

    full_state_update = True  # a batch alone would count its embeddings from 0
    x: list[Tensor] | Tensor
    numbers: list[Tensor] | Tensor
    n_offered: Tensor

    @checked
    def __init__(
        self,
        function: Callable[..., Any],
        max_rows: Annotated[int, Field(ge=2)] | None = None,
        **options: Any,
    ) -> None:
        params = signature(function).parameters
        arguments = {name: options.pop(name) for name in params.keys() & options.keys()}
        arguments |= {"max_rows": max_rows} if max_rows is not None and "max_rows" in params else {}
        if errors := invalid(function, arguments):
            raise ValueError("\n".join(errors))
        super().__init__(**options)
        self.function, self.options, self.max_rows = function, arguments, max_rows
        self.need = needs(function)
        self.columns = ["numbers", "x"] + [self.need] * (self.need != "rows")
        for name in self.columns:
            self.add_state(name, [], dist_reduce_fx="cat")
        self.add_state("n_offered", torch.tensor(0), dist_reduce_fx="sum")
        # a state, so that a MetricCollection merges no metrics of different budgets
        self.add_state("budget", torch.tensor(max_rows or 0), dist_reduce_fx="max")

    def update(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        groups: Tensor | None = None,
        reference: Tensor | None = None,
        positives: Tensor | None = None,
    ) -> None:
        """Add embeddings `[N, D]`; inputs that the function does not take are ignored."""
        inputs: dict[str, Any] = {"labels": labels, "groups": groups, "reference": reference}
        inputs |= {"positives": positives, "x": x, "numbers": self._numbers(x)}
        for name in self.columns:
            value = inputs[name]
            if value is None or len(value) != len(x):
                count = "none" if value is None else len(value)
                raise ValueError(
                    f"{self.function.__name__} takes {name}, one for each embedding: {count} for "
                    f"{len(x)}; call update(x, {name}=...)"
                )
        self.n_offered = self.n_offered + len(x)
        for name in self.columns:
            getattr(self, name).append(inputs[name].detach())
        if self.max_rows is not None:
            for name, column in self._subsample().items():
                setattr(self, name, [column])

    def compute(self) -> Any:
        """The function of the embeddings of all processes."""
        columns = self._subsample()
        order_N = columns.pop("numbers").argsort()
        inputs = {name: value[order_N] for name, value in columns.items()}
        return self.function(inputs.pop("x"), **inputs, **self.options)

    def _numbers(self, x_ND: Tensor) -> Tensor:
        """The number of each embedding among those of all processes, `[N]`."""
        rank, world = 0, 1
        if self.distributed_available_fn():
            rank = distributed.get_rank(self.process_group)
            world = distributed.get_world_size(self.process_group)
        position_N = torch.arange(len(x_ND), device=x_ND.device) + self.n_offered.to(x_ND.device)
        return position_N * world + rank

    def _subsample(self) -> dict[str, Tensor]:
        """The collected columns, without what exceeds the budget."""
        columns = {name: dim_zero_cat(getattr(self, name)) for name in self.columns}
        if self.max_rows is None:
            return columns
        sample_index = hash_ids(columns["numbers"]).argsort()[: self.max_rows]
        return {name: value[sample_index] for name, value in columns.items()}


def _of(name: str, function: Callable[..., Any]) -> type[EmbeddingMetric]:
    """The class of one function; it can be pickled, since this module has it by its name."""
    first_line = (function.__doc__ or "").splitlines()[0]
    init = partialmethod(EmbeddingMetric.__init__, function)
    members = {"__init__": init, "__doc__": first_line, "__module__": __name__}
    return type(name, (EmbeddingMetric,), members)


Alignment = _of("Alignment", isotrain.alignment)
AlphaReq = _of("AlphaReq", isotrain.alpha_req)
BestDimensionAccuracy = _of("BestDimensionAccuracy", isotrain.best_dimension_accuracy)
ClusterLabelNMI = _of("ClusterLabelNMI", isotrain.cluster_label_nmi)
Condition = _of("Condition", isotrain.condition)
CosineDrift = _of("CosineDrift", isotrain.cosine_drift)
EffectiveRank = _of("EffectiveRank", isotrain.effective_rank)
ExplainedVariance = _of("ExplainedVariance", isotrain.explained_variance)
IntraSentenceSimilarity = _of("IntraSentenceSimilarity", isotrain.intra_sentence_similarity)
IsoScore = _of("IsoScore", isotrain.isoscore)
IsoScoreCorrected = _of("IsoScoreCorrected", isotrain.isoscore_corrected)
IsoScoreStar = _of("IsoScoreStar", isoscore_star_of_rows)
LID = _of("LID", isotrain.lid)
LabelSilhouette = _of("LabelSilhouette", isotrain.label_silhouette)
LinearCKA = _of("LinearCKA", isotrain.linear_cka)
LinearProbeAccuracy = _of("LinearProbeAccuracy", isotrain.linear_probe_accuracy)
MaxExplainableVariance = _of("MaxExplainableVariance", isotrain.max_explainable_variance)
MeanCosine = _of("MeanCosine", isotrain.mean_cosine)
OutlierDims = _of("OutlierDims", isotrain.outlier_dims)
ParticipationRatio = _of("ParticipationRatio", isotrain.participation_ratio)
Partition = _of("Partition", isotrain.partition)
PartitionNull = _of("PartitionNull", isotrain.partition_null)
RankMe = _of("RankMe", isotrain.rankme)
RemovedLabelScatter = _of("RemovedLabelScatter", isotrain.removed_label_scatter)
SInter = _of("SInter", isotrain.s_inter)
SIntra = _of("SIntra", isotrain.s_intra)
ScatterRatio = _of("ScatterRatio", isotrain.scatter_ratio)
SelfSimilarity = _of("SelfSimilarity", isotrain.self_similarity)
SpectralEntropy = _of("SpectralEntropy", isotrain.spectral_entropy)
StableRank = _of("StableRank", isotrain.stable_rank)
TwoNN = _of("TwoNN", isotrain.two_nn)
Uniformity = _of("Uniformity", isotrain.uniformity)
