"""Regression of a score on a text or a pair of texts."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import CosineHead, LinearHead, ScaledCosineHead
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import HIDDEN, Source, load_split
from isotrain.tasks.texts import TextTask
from isotrain.types import Row

Score = Literal["spearman", "pearson", "spearman_within"]
SPLIT_OF = {"val": "dev", "holdout": "train", "test": "test"}


class Regression(TextTask):
    """A graded score of one text or two, by squared error.

    The cross form regresses the score from one sequence; bi compares two vectors by cosine.

    The loss maps the scale to [0, 1]. A score outside a given end is an error.
    Further arguments are those of `TextTask`.

    Args:
        low: lower end of the scale; None = the least score of train.
        high: upper end of the scale; None = the greatest score of train.
        scaled_cosine: whether the bi form fits the label by eᵃ·cos + b with a and b trained
            (`ScaledCosineHead`), not by the cosine itself.
        has_loss: whether the squared error trains; False = the bi form is trained by objectives
            alone, such as `CoSENT`, and the squared error of the cosine is a number of evaluation.
        group: column of the group of an example, such as its genre, for `spearman_within`.
        metrics: scores; the first is monitored. spearman_within = Spearman in each group, mean
            over groups weighted by their examples (`SpearmanWithin`).

    Raises:
        ValueError: `spearman_within` without `group`, `scaled_cosine` without `form="bi"`, or a
            head that no loss would train.
    """

    @checked
    def __init__(
        self,
        name: str | None = None,
        text: Annotated[Sequence[str], Field(min_length=1, max_length=2)] = ("text",),
        label: str = "score",
        low: float | None = None,
        high: float | None = None,
        form: Form = "cross",
        max_length: Annotated[int, Field(ge=3)] = 128,
        head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        scaled_cosine: bool = False,
        has_loss: bool = True,
        prefix: str | Sequence[str] = "",
        group: str | None = None,
        metrics: Annotated[Sequence[Score], Field(min_length=1)] = ("spearman", "pearson"),
        data_set: Mapping[str, Any] | None = None,
    ) -> None:
        name = name or "regression"
        extra = data_set or {}
        super().__init__(name, text, label, float, form, max_length, head_dropout, prefix, extra)
        if "spearman_within" in metrics and group is None:
            raise ValueError("spearman_within ranks within groups; name their column by task.group")
        if group:
            self.data_set = self.data_set._replace(fields={group: object, **self.data_set.fields})
        self.group, self.numbers = group, dict[str, Tensor]()
        if scaled_cosine and form != "bi":
            raise ValueError("scaled_cosine=true scales the cosine of form=bi, got form=cross")
        if not has_loss and (form != "bi" or scaled_cosine):
            raise ValueError(
                "has_loss=false trains by objectives alone, which do not reach a head, and "
                f"form={form} scaled_cosine={str(scaled_cosine).lower()} has one to train; use "
                "form=bi scaled_cosine=false"
            )
        self.scaled_cosine, self.has_loss = scaled_cosine, has_loss
        self.ends = low, high
        self.scale = None if low is None or high is None else (low, high)
        self.scores, self.monitor = list(metrics), metrics[0]

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Examples of each split, as `Task.load`; finds the scale if it is not given.

        Raises:
            ValueError: as `Task.load`, or a scale whose ends are not in order.
        """
        low, high = self.ends
        if low is None or high is None:
            target = self.data_set.target
            rows = load_split(source, self.data_set, "train")
            is_hidden = "train" in self.data_set.hides
            scores = [r[target] for r in rows if not (is_hidden and r[target] == HIDDEN)]
            low, high = (min(scores) if low is None else low, max(scores) if high is None else high)
        if low >= high:
            raise ValueError(f"task.low must be below task.high, got {low:g} and {high:g}")
        self.scale = low, high
        if low <= HIDDEN:  # which is a score then
            self.data_set = self.data_set._replace(hides=())
        splits = super().load(source)
        if self.group:
            codes: dict[Any, int] = {}
            self.numbers = {
                split: torch.tensor([codes.setdefault(r[self.group], len(codes)) for r in rows])
                for split, rows in splits.items()
            }
        return splits

    def groups(self, stage: str, index: Tensor) -> Tensor:
        """The number of the value that each example has in the column `group`."""
        if not self.group:
            return super().groups(stage, index)
        return self.numbers[SPLIT_OF[stage]].to(index.device)[index]

    def check_row(self, row: Row) -> None:
        """Reject a score outside the given scale, and what `TextTask` rejects."""
        super().check_row(row)
        target, (low, high) = self.data_set.target, self.ends
        score = row[target]
        if (low is not None and score < low) or (high is not None and score > high):
            raise ValueError(f"{row['at']}: {target} must lie in {self._range()}, got {score}")

    def label(self, row: Row) -> float:
        """The score on the scale from `low` = 0 to `high` = 1."""
        assert self.scale is not None
        low, high = self.scale
        return (float(row[self.data_set.target]) - low) / (high - low)

    def labels(self) -> str:
        """The scale, if an end is inferred from train; else empty."""
        if None not in self.ends:
            return ""
        return f"scores: {self._range()} of {self.data_set.target} are 0 to 1"

    def _range(self) -> str:
        assert self.scale is not None
        return "{:g} to {:g}".format(*self.scale)

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """The cosine of the pair (bi), or a linear score that starts at mid-scale (cross)."""
        if self.form == "bi":
            return ScaledCosineHead() if self.scaled_cosine else CosineHead()
        return LinearHead(width, n_vectors, 1, dropout=self.head_dropout, bias=0.5)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean squared error on the label, in [0, 1]."""
        return nn.functional.mse_loss(logits[:, 0], labels)

    def predictions(self, logits: Tensor) -> Tensor:
        """The predicted label `[B]`."""
        return logits[:, 0].float()

    def metrics(self) -> Any:
        """Correlations over all examples, in [−1, 1]; NaN if undefined."""
        from torchmetrics import MetricCollection  # here: the check of arguments need not wait

        from isotrain.tasks.correlation import Pearson, Spearman, SpearmanWithin

        classes: Mapping[Score, Callable[[], Any]] = {
            "spearman": Spearman,
            "pearson": Pearson,
            "spearman_within": SpearmanWithin,
        }
        with warnings.catch_warnings():  # rank correlation has to keep every score: intended
            warnings.filterwarnings("ignore", message=".*will save all targets.*")
            return MetricCollection({name: classes[name]() for name in self.scores})
