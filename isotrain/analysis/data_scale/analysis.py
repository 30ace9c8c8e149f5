"""How much labelled data contextual features save: the same head on three kinds of vectors.

E examples, N rows (of a tagged sentence: its words).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field

from isotrain.analysis.annotated import CHUNKS
from isotrain.analysis.data_scale.measures import (
    Encoded,
    Examples,
    encoded,
    measured,
    of_chunks,
    of_folder,
    read_diagnostic,
    scored_labels,
    sentence_examples,
    sizes,
    tagged_examples,
)
from isotrain.analysis.data_scale.show import ENCODER, PLOTS, RANDOM, STATIC, TABLES
from isotrain.analysis.data_sets import AVAILABLE, TEXTS, Available, Present, Texts, present
from isotrain.analysis.probe import not_installed
from isotrain.analysis.types import AFTER, Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.encoders.base import Encoder
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.static import build_static
from isotrain.tasks.data.sources import Source
from isotrain.types import Row

OfSentences = Literal["sst2", "rte", "snli"]
Task = Literal["sst2", "rte", "snli", "chunks"]
SENTENCES = {name: TEXTS[name] for name in get_args(OfSentences)}
CONLL = "conll"
TASKS = {**SENTENCES, "chunks": Texts(CHUNKS)}
MOST_SEEDS = 255
read_vectors = cache(build_static)  # minutes for a large file, which every task reads


@analysis
class DataScale(Analysis):
    """Scores of heads on frozen features, over training sizes.

    The features of a sentence are the mean of its tokens, of a pair (u, v, |u − v|, u·v), of a word
    the mean of its tokens with those of its neighbours; of the encoder, a file of word vectors, and
    random vectors for the encoder's tokens, drawn anew for each seed. After a run the encoder alone
    is measured again. The arguments are the keys of `conf/analysis/data_scale.yaml`.
    """

    name = "data_scale"
    question = "How much more labelled data do features without context need to be as good?"

    TABLES, PLOTS = TABLES, PLOTS

    tasks: Available | Sequence[Task] = AVAILABLE
    static: str | None = None
    lowercase: bool = True
    conll: str | None = None
    diagnostic: str | None = None
    window: Annotated[int, Field(ge=0)] = 1
    smallest: Annotated[int, Field(ge=8)] = 32
    factor: Annotated[float, Field(gt=1)] = 4.0
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 5
    max_rows: Annotated[int, Field(ge=8)] = 5000
    max_evaluated: Annotated[int, Field(ge=8)] = 1000

    def missing(self, source: Source) -> Sequence[str]:
        """Missing data sets, and scikit-learn."""
        is_enough = self.conll and self.tasks == AVAILABLE
        problems = [] if is_enough else self._present(source).problems
        return [*problems, *not_installed()]

    def data_sets(self, source: Source) -> Iterable[Any]:
        """Data sets of the tasks; given files count by content."""
        return [TASKS[task].data_set for task in self._present(source).names]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """Each task with each kind of features, fast ones first."""
        kinds = [*[STATIC] * bool(self.static), RANDOM, ENCODER]
        kinds = kinds[-1:] if subject.weights == AFTER else kinds  # the others do not train
        tasks = self._present(subject.source).names
        for task, features in product([*tasks, *[CONLL] * bool(self.conll)], kinds):
            yield Part(f"{task}-{features}", partial(self._part, subject, task, features))

    def _present(self, source: Source) -> Present:
        """The tasks that the source has; chunks, which take longest, only if they are named."""
        return present(source, self.tasks, SENTENCES if self.tasks == AVAILABLE else TASKS)

    def _part(self, subject: Subject, task: str, features: str) -> PartResult:
        file = self.diagnostic if task == "snli" else None
        diagnostic = read_diagnostic(Path(file).expanduser()) if file else None
        examples = self._examples(subject, task, diagnostic.rows if diagnostic else ())
        seeds = [subject.seed * (MOST_SEEDS + 1) + k for k in range(1, self.seeds + 1)]
        encoder = self._encoder(subject, features, seeds[0])

        @lru_cache(maxsize=1)
        def read(number: int) -> Encoded:  # only random vectors differ by seed
            seed_encoder = self._encoder(subject, features, seeds[number]) if number else encoder
            return encoded(subject._replace(encoder=seed_encoder), examples)

        facts = {"task": task, "features": features}
        largest = int(np.unique(scored_labels(examples), return_counts=True)[1].max())
        feature_record: Record = {
            "kind": "features",
            **facts,
            "layer": encoder.n_blocks,
            "width": encoder.width,
            "inputs": read(0).features([0]).shape[1],
            **read(0).facts,
            "n_texts": len(examples.texts),
            "n_train": examples.n_train,
            "n_scored": examples.n_scored,
            "split": "test" if task == "chunks" else "dev",
            "majority": None if examples.gold else largest / examples.n_scored,
            "source": encoder.source_id,
        }
        encode = read if features == RANDOM else lambda number: read(0)
        grid = sizes(examples.n_train, self.smallest, self.factor)
        records = measured(encode, examples, grid, seeds, diagnostic)
        return PartResult([feature_record, *({**facts, **record} for record in records)])

    def _examples(self, subject: Subject, task: str, more: Sequence[Row]) -> Examples:
        sampling = (self.max_rows, self.max_evaluated, subject.seed * (MOST_SEEDS + 1))
        if task == CONLL:
            splits = of_folder(Path(str(self.conll)).expanduser())
            return tagged_examples(splits, self.window, *sampling)
        if task == "chunks":
            return tagged_examples(of_chunks(subject.source), self.window, *sampling)
        return sentence_examples(subject.source, task, *sampling, more)

    def _encoder(self, subject: Subject, features: str, seed: int) -> Encoder:
        encoder = subject.encoder
        if features == STATIC:
            return read_vectors(str(self.static), self.lowercase)
        if features == RANDOM:
            return random_vectors(encoder.tokenizer, encoder.width, seed, encoder.source_id)
        return encoder
