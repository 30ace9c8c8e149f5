"""Regression of a score on a text or a pair of texts."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import CosineHead, LinearHead, ScaledCosineHead
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import HIDDEN, Source, load_split
from isotrain.tasks.texts import TextTask
from isotrain.types import Row

Score = Literal["spearman", "pearson"]


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
        metrics: scores; the first is monitored.

    Raises:
        ValueError: `scaled_cosine` without `form="bi"`.
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
        prefix: str | Sequence[str] = "",
        metrics: Annotated[Sequence[Score], Field(min_length=1)] = ("spearman", "pearson"),
        data_set: Mapping[str, Any] | None = None,
    ) -> None:
        name = name or "regression"
        place = data_set or {}
        super().__init__(name, text, label, float, form, max_length, head_dropout, prefix, place)
        if scaled_cosine and form != "bi":
            raise ValueError("scaled_cosine=true scales the cosine of form=bi, got form=cross")
        self.scaled_cosine = scaled_cosine
        self.ends, self.low, self.high = (low, high), low, high
        self.scores, self.monitor = list(metrics), metrics[0]

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Examples of each split, as `Task.load`; finds the scale if it is not given.

        Raises:
            ValueError: as `Task.load`, or a scale whose ends are not in order.
        """
        low, high = self.ends
        if low is None or high is None:
            target = self.data_set.target
            scores = [row[target] for row in load_split(source, self.data_set, "train")]
            low, high = (min(scores) if low is None else low, max(scores) if high is None else high)
        if low >= high:
            raise ValueError(f"task.low must be below task.high, got {low:g} and {high:g}")
        self.low, self.high = low, high
        if low <= HIDDEN:  # which is a score then
            self.data_set = self.data_set._replace(hides=())
        return super().load(source)

    def check_row(self, row: Row) -> None:
        """Reject a score outside the given scale, and what `TextTask` rejects."""
        super().check_row(row)
        target, (low, high) = self.data_set.target, self.ends
        score = row[target]
        if (low is not None and score < low) or (high is not None and score > high):
            raise ValueError(
                f"{row['at']}: {target} must lie in {self.low:g} to {self.high:g}, got {score}"
            )

    def label(self, row: Row) -> float:
        """The score on the scale from `low` = 0 to `high` = 1."""
        assert self.low is not None
        assert self.high is not None
        return (float(row[self.data_set.target]) - self.low) / (self.high - self.low)

    def labels(self) -> str:
        """The scale, where train made it."""
        if None not in self.ends:
            return ""
        return f"scores: {self.low:g} to {self.high:g} of {self.data_set.target} are 0 to 1"

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
        """Spearman and Pearson correlation over all examples, in [−1, 1]; NaN if undefined."""
        from torchmetrics import MetricCollection  # here: the check of arguments need not wait

        from isotrain.tasks.correlation import Pearson, Spearman

        known = {"spearman": Spearman, "pearson": Pearson}
        with warnings.catch_warnings():  # rank correlation has to keep every score: intended
            warnings.filterwarnings("ignore", message=".*will save all targets.*")
            return MetricCollection({name: known[name]() for name in self.scores})
