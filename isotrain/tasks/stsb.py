"""STS-B: how similar are two sentences, 0 to 5? (Cer et al. 2017)"""

import warnings
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import CosineHead, LinearHead, ScaledCosineHead
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import DataSet
from isotrain.tasks.pairs import PairTask
from isotrain.types import Row

DATA = DataSet(
    name="stsb",
    fields={"sentence1": str, "sentence2": str, "score": float},
    target="score",
    hub_id="mteb/stsbenchmark-sts",
    hub_config=None,
    hub_revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    folders=("STS-B",),
)


class STSB(PairTask):
    """A graded score; scored by Spearman and Pearson correlation.

    The cross form regresses the score from one sequence; bi compares two vectors by cosine.

    Args:
        form, max_length, head_dropout: as in `PairTask`.
        scaled_cosine: whether the bi form fits the label by eᵃ·cos + b with a and b trained
            (`ScaledCosineHead`), not by the cosine itself.

    Raises:
        ValueError: `scaled_cosine` without `form="bi"`.
    """

    data_set = DATA
    name, monitor = "stsb", "spearman"
    highest = 5.0  # score

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Field(ge=3)] = 128,
        head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        scaled_cosine: bool = False,
    ) -> None:
        super().__init__(form, max_length, head_dropout)
        if scaled_cosine and form != "bi":
            raise ValueError("scaled_cosine=true scales the cosine of form=bi, got form=cross")
        self.scaled_cosine = scaled_cosine

    def check_row(self, row: Row) -> None:
        """Reject a score outside 0 to the highest."""
        if not 0 <= (score := row[self.data_set.target]) <= self.highest:
            target = self.data_set.target
            raise ValueError(
                f"{row['at']}: {target} must lie in 0 to {self.highest:g}, got {score}"
            )

    def label(self, row: Row) -> float:
        """The score divided by the highest, in [0, 1]."""
        return float(row[self.data_set.target]) / self.highest

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

        with warnings.catch_warnings():  # rank correlation has to keep every score: intended
            warnings.filterwarnings("ignore", message=".*will save all targets.*")
            return MetricCollection({"spearman": Spearman(), "pearson": Pearson()})
