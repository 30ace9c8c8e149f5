"""Transforms of frozen token embeddings: their effect on sentence similarity and isotropy."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field

from isotrain.analysis.data_sets import (
    PLACES,
    SST2,
    Pairs,
    check_names,
    present,
    readable_sets,
)
from isotrain.analysis.encode import drop_rows
from isotrain.analysis.offline_isotropy.clouds import NONE, RECIPES, token_clouds
from isotrain.analysis.offline_isotropy.scores import (
    TRAIN,
    measure_pairs,
    measure_sst2,
    read_examples,
    train_sentences,
)
from isotrain.analysis.offline_isotropy.show import PLOTS, TABLES
from isotrain.analysis.probe import not_installed
from isotrain.analysis.types import Analysis, Found, Part, Subject, analysis
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import Source

FitOn = Literal["train", "test"]
ALL = "all"


@analysis
class OfflineIsotropy(Analysis):
    """Transforms of token embeddings, then mean pooling, cosine and its correlation with gold.

    Each layer is transformed and scored on its own. CLS, SEP and pads are neither fitted nor
    pooled, as published; `own_pooling` is the mean over all tokens. Gains are over `none`. Each
    different sentence counts once. Statistics are fitted on one split and frozen: with
    `fit_on=train` on STS-B's train split, less the scored sentences; with `test` on the scored
    sentences, the published protocol (transductive, without gold); for SST-2, whose features a
    linear head reads, on its train split. The arguments are the keys of
    `conf/analysis/offline_isotropy.yaml`. Rajaei and Sheikhi 2020; Rajaee and Pilehvar 2021.
    """

    name = "offline_isotropy"
    question = "What do transforms of frozen token embeddings do to STS scores and isotropy?"

    TABLES, PLOTS = TABLES, PLOTS

    sets: str | Sequence[str] = "available"
    transforms: Sequence[str] = (
        "own_pooling",
        "none",
        "mean",
        "mean_pca",
        "kmeans_mean",
        "kmeans_mean_pca",
        "gmm_mean_pca",
    )
    layers: str | Sequence[int] = ALL
    n_clusters: Annotated[int, Field(ge=2)] = 27
    n_components: Annotated[int, Field(ge=1)] = 12
    n_directions: Annotated[int, Field(ge=1)] = 12
    n_iterations: Annotated[int, Field(ge=1)] = 10
    rho: Annotated[float, Field(gt=0, le=1)] = 0.25
    fit_on: FitOn = "train"
    max_rows: Annotated[int, Field(ge=100)] = 50_000
    n_resamples: Annotated[int, Field(ge=50)] = 200
    map_rows: Annotated[int, Field(ge=10)] = 2000
    max_train: Annotated[int, Field(ge=10)] = 10_000
    l2: Annotated[float, Field(gt=0)] = 1e-3
    published: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        """Check the names."""
        check_names("sets", self.sets, PLACES)
        check_names("transforms", self.transforms, RECIPES, available=False)
        if NONE not in self.transforms:
            raise ValueError(f"transforms must have {NONE}, which gains are over; add it")

    def missing(self, source: Source) -> Sequence[str]:
        """Requested sets that the source lacks, or all if it has none; and data to fit on."""
        names, _, lacking = present(source, self.sets, PLACES)
        if self._fits_on_train(names) and (problem := source.missing(PLACES[TRAIN].data_set)):
            lacking.append(
                f"fit_on=train needs the train split of STS-B: {problem}; or use "
                "analysis.fit_on=test"
            )
        if SST2 in names:
            lacking += not_installed()
        return list(dict.fromkeys(lacking))

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The measured data sets, and the one that statistics are fitted on."""
        names = present(source, self.sets, PLACES).names
        found = [PLACES[name].data_set for name in names]
        return [*found, PLACES[TRAIN].data_set] if self._fits_on_train(names) else found

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The absent sets, then each set at each layer."""
        layers = self._layers(subject)
        names, pairs, absent = readable_sets(subject.source, self.sets)
        left_out = [
            {"kind": "set left out", "set": name, "reason": why} for name, why in absent.items()
        ]
        yield Part("sets", lambda: Found(left_out))
        mapped = TRAIN if TRAIN in names else next((n for n in names if n != SST2), None)
        for name in names:
            if name == SST2:
                examples = read_examples(subject.source, self.max_train, subject.seed)
                clouds = cache(partial(token_clouds, subject, SST2, examples.sentences, layers))
                measure: Callable[[int], Found] = partial(
                    measure_sst2, subject, self, examples, clouds
                )
            else:
                map_rows = self.map_rows if name == mapped else 0
                measure = self._of_pairs(subject, layers, name, pairs[name], map_rows)
            for layer in layers:
                yield Part(f"{name}-layer_{layer:02d}", partial(measure, layer))
            for on_disk in (name, f"{name}_fit"):  # every part of the set has been measured
                drop_rows(subject, on_disk)

    def _of_pairs(
        self, subject: Subject, layers: Sequence[int], name: str, pairs: Pairs, map_rows: int
    ) -> Callable[[int], Found]:
        encoded = partial(token_clouds, subject, layers=layers)
        clouds, train_clouds = cache(partial(encoded, name, pairs.sentences)), None
        if self.fit_on == "train":
            left = train_sentences(subject.source, name, pairs)
            train_clouds = cache(partial(encoded, f"{name}_fit", left, most=self.max_rows))
        return partial(measure_pairs, subject, self, name, pairs, clouds, train_clouds, map_rows)

    def _fits_on_train(self, names: Sequence[str]) -> bool:
        return self.fit_on == "train" and any(name != SST2 for name in names)

    def _layers(self, subject: Subject) -> list[int]:
        encoder, most = subject.encoder, max(self.n_components, self.n_directions)
        every = range(encoder.n_blocks + 1)
        layers: list[Any] = [*every] if self.layers == ALL else [*dict.fromkeys(self.layers)]
        if not layers or set(layers) - {*every}:
            raise CannotRunError(
                f"analysis.layers must be {ALL} or numbers from 0 to {encoder.n_blocks} for this "
                f"encoder, got {layers}"
            )
        if most >= encoder.width:
            raise CannotRunError(
                f"n_components and n_directions must be below {encoder.width}, the width of the "
                f"rows, got {most}"
            )
        return layers
