"""How much labelled data contextual features save: the same head on three kinds of vectors."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field
from torch import Tensor

from isotrain.analysis.data_scale.measures import encoded, measured, read_examples, sizes
from isotrain.analysis.data_scale.show import ENCODER, PLOTS, RANDOM, STATIC, TABLES
from isotrain.analysis.data_sets import AVAILABLE, TEXTS, Available, present
from isotrain.analysis.probe import not_installed
from isotrain.analysis.types import AFTER, Analysis, Found, Part, Record, Subject, analysis
from isotrain.encoders.base import Encoder
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.static import build_static
from isotrain.tasks.data.sources import Source

Task = Literal["sst2", "rte", "snli"]
TASKS = {name: TEXTS[name] for name in get_args(Task)}
MOST_SEEDS = 255
read_vectors = cache(build_static)  # minutes for a large file, which every task reads


@analysis
class DataScale(Analysis):
    """Scores of heads on frozen features, over training sizes.

    The features of a sentence are the mean of its tokens, of a pair (u, v, |u − v|, u·v); of the
    encoder, a file of word vectors, and random vectors for the encoder's tokens, drawn anew for
    each seed. After a run the encoder alone is measured again. The arguments are the keys of
    `conf/analysis/data_scale.yaml`.
    """

    name = "data_scale"
    question = "How much more labelled data do features without context need to be as good?"

    TABLES, PLOTS = TABLES, PLOTS

    tasks: Available | Sequence[Task] = AVAILABLE
    static: str | None = None
    lowercase: bool = True
    smallest: Annotated[int, Field(ge=8)] = 32
    factor: Annotated[float, Field(gt=1)] = 4.0
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 5
    max_rows: Annotated[int, Field(ge=8)] = 5000
    max_evaluated: Annotated[int, Field(ge=8)] = 1000

    def missing(self, source: Source) -> Sequence[str]:
        """Missing data sets, and scikit-learn."""
        return [*present(source, self.tasks, TASKS).problems, *not_installed()]

    def data_sets(self, source: Source) -> Iterable[Any]:
        """Data sets of the tasks."""
        return [TASKS[task].data_set for task in present(source, self.tasks, TASKS).names]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """Each task with each kind of features, fast ones first."""
        others = (*[STATIC] * bool(self.static), RANDOM)
        if subject.weights == AFTER:  # what training leaves as it was
            others = ()
        for task in present(subject.source, self.tasks, TASKS).names:
            for kind in (*others, ENCODER):
                yield Part(f"{task}-{kind}", partial(self._part, subject, task, kind))

    def _part(self, subject: Subject, task: str, kind: str) -> Found:
        base = subject.seed * (MOST_SEEDS + 1)
        seeds = [base + k for k in range(1, self.seeds + 1)]
        examples = read_examples(subject.source, task, self.max_rows, self.max_evaluated, base)
        label_n = examples.label_N[examples.n_train :]
        encoder = self._encoder(subject, kind, seeds[0])

        @lru_cache(maxsize=1)
        def read(number: int) -> tuple[Tensor, Record]:
            own = self._encoder(subject, kind, seeds[number]) if number else encoder
            return encoded(subject._replace(encoder=own), examples)

        x_NF, about = read(0)
        facts = {"task": task, "features": kind}
        record: Record = {
            "kind": "features",
            **facts,
            "layer": encoder.n_blocks,
            "width": encoder.width,
            "inputs": x_NF.shape[1],
            **about,
            "n_texts": len(examples.texts),
            "n_train": examples.n_train,
            "n_scored": len(label_n),
            "majority": float(np.bincount(label_n).max() / len(label_n)),
            "source": encoder.source_id,
        }
        scores = measured(
            lambda number: read(number if kind == RANDOM else 0)[0],
            examples,
            sizes(examples.n_train, self.smallest, self.factor),
            seeds,
        )
        return Found([record, *({**facts, **score} for score in scores)])

    def _encoder(self, subject: Subject, kind: str, seed: int) -> Encoder:
        if kind == STATIC:
            return read_vectors(str(Path(str(self.static)).expanduser()), self.lowercase)
        if kind == RANDOM:
            given = subject.encoder
            return random_vectors(given.tokenizer, given.width, seed, given.source_id)
        return subject.encoder
