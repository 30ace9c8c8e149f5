"""Word sense disambiguation by neighbours and by a linear probe, before and after a cut.

N occurrences of a word, D dimensions.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from isotrain.analysis.annotated import SENSES, find_words, three_parts
from isotrain.analysis.charts import LinePlot
from isotrain.analysis.encode import encode_rows, subsample
from isotrain.analysis.outliers import find_tails, treatments
from isotrain.analysis.probe import best_penalty, not_installed
from isotrain.analysis.show import Frames, TableSpec, best_on_dev, left_out
from isotrain.analysis.types import Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.results.statistics import wilson
from isotrain.tasks.data.sources import Source, load_split
from isotrain.types import Row

EPSILON = 1e-6  # of whitening
MAJORITY = "most frequent sense"
PARTS = ("train", "dev", "test")
FEWEST = 2  # occurrences in each part, and senses in train


class Occurrences(NamedTuple):
    """Occurrences of one word, by part."""

    x_ND: np.ndarray
    sense_N: np.ndarray
    part_N: np.ndarray

    def of(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and senses of a part."""
        mask_N = self.part_N == part
        return self.x_ND[mask_N], self.sense_N[mask_N]


def predictions(words: Occurrences, n_neighbors: int, penalties: Sequence[float]) -> dict[str, Any]:
    """A function of embeddings to senses for each method, fitted on train.

    Neighbours are the nearest by cosine; the penalty of the probe has the least loss on dev.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.neighbors import KNeighborsClassifier

    train, n_senses = words.of("train"), int(words.sense_N.max()) + 1
    neighbors = KNeighborsClassifier(min(n_neighbors, len(train[1])), metric="cosine").fit(*train)
    probe = best_penalty(*train, *words.of("dev"), penalties, n_senses).probe
    majority = DummyClassifier().fit(*train)
    return {"neighbours": neighbors, "linear probe": probe, MAJORITY: majority}


def _means(frames: Frames) -> pd.DataFrame:
    """Means over the words, each with the same weight."""
    if (scores := frames.of("senses")).empty:
        return scores
    keys = ["weights", "method", "treatment", "layer"]
    values = ["dev", "test", "macro_f1"]
    scores[values] = scores[values].astype(float)
    return scores.groupby(keys, sort=False)[values].mean().reset_index()


def _best_layers(frames: Frames) -> pd.DataFrame:
    """For each word, method and treatment the layer with the best accuracy on dev."""
    if (scores := frames.of("senses")).empty:
        return scores
    best = best_on_dev(scores, ["weights", "lemma", "method", "treatment"])
    is_baseline = best["method"] == MAJORITY
    best = best[~is_baseline | (best["treatment"] == "none")]
    return best.assign(
        layer=[
            None if method == MAJORITY else layer
            for method, layer in zip(best["method"], best["layer"], strict=True)
        ]
    )


@analysis
class WordSenses(Analysis):
    """How well do the embeddings of a word tell its senses, at each layer?

    Each word has its own senses, and its occurrences are split into train, dev and test (60, 20
    and 20 %, by a hash of the seed; equal sentences count once). Embeddings are as they are
    (`none`), with the encoder's outlier dimensions set to zero (`cut`), and whitened on train. The
    senses of the occurrences are uneven, so the most frequent sense and macro F1 stand beside the
    accuracy. Luo 2020. The arguments are the keys of `conf/analysis/word_senses.yaml`.
    """

    name = "word_senses"
    question = "Which senses of a word do its embeddings tell, and do outlier dimensions matter?"
    TABLES: ClassVar = (
        TableSpec(
            "senses",
            "Senses of a word, at the layer that dev chooses",
            of=_best_layers,
            index={"lemma": "word", "method": "method", "treatment": "embeddings"},
            values={
                **{"layer": "layer", "dev": "dev", "test": "test", "macro_f1": "macro F1"},
                **{"n_senses": "senses", "n_train": "N train", "n_test": "N test"},
            },
            notes=(
                "Accuracy with Wilson's 95 % CI, and the mean F1 of the senses, on test. "
                "Neighbours: the majority of the {n_neighbors} nearest by cosine. Linear probe: "
                "multinomial logistic regression.",
                left_out("word left out", "lemma"),
            ),
        ),
        TableSpec(
            "layers",
            "Test accuracy of each layer, a mean over the words",
            of=_means,
            index={"layer": "layer", "method": "method"},
            values={"test": "", "macro_f1": "macro F1"},
            across="treatment",
        ),
    )
    PLOTS: ClassVar = (
        LinePlot(
            "senses",
            "Word senses by layer",
            "By layer: accuracy of word senses on test, a mean over the words.",
            of=_means,
            y={"test": "accuracy"},
            hue="treatment",
            panel="method",
            ylabel="accuracy",
        ),
    )

    max_occurrences: Annotated[int | None, Field(ge=50)] = 1500
    n_neighbors: Annotated[int, Field(ge=1)] = 5
    penalties: Sequence[float] = (1.0, 0.1, 0.01)
    max_rows: Annotated[int, Field(ge=100)] = 20000
    threshold: Annotated[float, Field(gt=0)] = 3.0
    layers_share: Annotated[float, Field(gt=0, le=1)] = 0.75

    def missing(self, source: Source) -> Sequence[str]:
        """The data set if it is absent; scikit-learn."""
        return [*super().missing(source), *not_installed()]

    def data_sets(self, source: Source) -> Sequence[Any]:
        """Sense-tagged occurrences of words."""
        return [SENSES]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """Each word."""
        rows = {(r["lemma"], *r["tokens"]): r for r in load_split(subject.source, SENSES, "train")}
        by_lemma: dict[str, list[Row]] = {}
        for row in rows.values():
            by_lemma.setdefault(row["lemma"], []).append(row)
        dims = cache(
            partial(self._dims, subject, [" ".join(row["tokens"]) for row in rows.values()])
        )
        for lemma, lemma_rows in by_lemma.items():
            yield Part(lemma, partial(self._measured, subject, lemma_rows, dims))

    def _dims(self, subject: Subject, texts: list[str]) -> list[int]:
        limits = self.max_rows, self.threshold, self.layers_share
        return find_tails(subject, texts, *limits).dims

    def _measured(self, subject: Subject, rows: Sequence[Row], dims: Any) -> PartResult:
        from sklearn.metrics import f1_score
        from threadpoolctl import threadpool_limits

        lemma, sample = rows[0]["lemma"], subsample(rows, self.max_occurrences, subject.seed)
        words = find_words(
            subject.encoder.tokenizer,
            [row["tokens"] for row in sample],
            subject.max_length,
            [[row["position"]] for row in sample],
        )
        senses, sense_N = np.unique([row["sense"] for row in sample], return_inverse=True)
        sense_N = sense_N[words.spans.sentence_N]
        part_N, outliers = three_parts(len(sense_N), subject.seed), dims()
        n_of = {part: int((part_N == part).sum()) for part in PARTS}
        n_known = len(set(sense_N[part_N == "train"].tolist()))
        if min(n_known, *n_of.values()) < FEWEST:
            reason = f"{n_of} occurrences, {n_known} senses in train; it needs {FEWEST} of each"
            return PartResult([{"kind": "word left out", "lemma": lemma, "reason": reason}])
        facts: Record = {
            "lemma": lemma,
            "n_neighbors": self.n_neighbors,
            "n_senses": len(senses),
            "n_left_out": len(sample) - len(sense_N),
            "n_outliers": len(outliers),
            **{f"n_{part}": n for part, n in n_of.items()},
        }
        records: list[Record] = []
        for layer, x_ND in enumerate(encode_rows(subject, words.tokens, words.spans)):
            x = torch.from_numpy(x_ND)
            for name, treat in treatments(x[part_N == "train"], outliers, EPSILON).items():
                splits = Occurrences(treat(x).numpy(), sense_N, part_N)
                for method, model in predictions(splits, self.n_neighbors, self.penalties).items():
                    with threadpool_limits(torch.get_num_threads()):  # else BLAS takes every core
                        outputs = {
                            p: (model.predict(splits.of(p)[0]), splits.of(p)[1])
                            for p in ("dev", "test")
                        }
                    share = {p: float((a == b).mean()) for p, (a, b) in outputs.items()}
                    low, high = wilson(share["test"], facts["n_test"])
                    keys = {"method": method, "treatment": name, "layer": layer}
                    f1 = float(f1_score(*outputs["test"][::-1], average="macro", zero_division=0))
                    metrics = {"test_low": low, "test_high": high, "macro_f1": f1}
                    records.append({"kind": "senses", **facts, **keys, **share, **metrics})
        return PartResult(records)
