"""Clusters and manifolds of every layer: S_inter, S_intra, silhouettes, LID, maps (Cai et al.)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from isotrain.analysis.clusters.measures import measure_layer, measure_lid
from isotrain.analysis.clusters.rows import Sample, read_texts, sample_encoder, sample_vectors
from isotrain.analysis.clusters.show import PLOTS, TABLES
from isotrain.analysis.data_sets import PTB, RUNNING, check_names, data_set_of
from isotrain.analysis.types import Analysis, Found, Part, Record, Subject, analysis
from isotrain.analysis.vectors import open_vectors
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import SPLITS, LocalSource, Source


@analysis
class Clusters(Analysis):
    """S_inter and S_intra raw, centred and inside clusters; k by silhouette; LID; maps.

    A type is a token id of the tokenizer (of `vectors`: a text). Tokens are drawn by hashing their
    positions with the seed, without CLS, SEP, pads and the unknown token; equal embeddings of a
    type count once. The arguments are the keys of `conf/analysis/clusters.yaml`.
    """

    name = "clusters"
    question = "Which clusters and low-dimensional shapes do the tokens of each layer form?"

    TABLES, PLOTS = TABLES, PLOTS

    corpus: str = "wikitext-2"
    splits: Sequence[str] = ("train",)
    text: Literal["chunks", "sentences"] = "chunks"
    chunk: Annotated[int, Field(ge=1)] = 512
    max_tokens: Annotated[int, Field(ge=1)] = 200_000
    max_rows: Annotated[int, Field(ge=3)] = 20_000
    k_max: Annotated[int, Field(ge=2)] = 15
    cut: Annotated[float, Field(ge=-1, le=1)] = 0.1
    silhouette_rows: Annotated[int, Field(ge=3)] = 2000
    n_neighbors: Annotated[int, Field(ge=2)] = 100
    lid_queries: Annotated[int | None, Field(ge=1)] = 5000
    map_layers: Sequence[int] | None = None
    map_rows: Annotated[int, Field(ge=1, le=10_000)] = 3000
    vectors: str | None = None
    tokens: str | None = None
    published: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        """Validate the names."""
        data_set_of(self.corpus, {"ptb": PTB})
        check_names("splits", self.splits, SPLITS, available=False)
        if self.text == "chunks" and self.corpus not in RUNNING:
            raise ValueError(
                f"analysis.text=chunks needs running text, {' or '.join(RUNNING)}, got "
                f"{self.corpus}; set analysis.text=sentences"
            )
        if self.tokens is not None and self.vectors is None:
            raise ValueError("analysis.tokens belongs to analysis.vectors, which is null; set both")

    @property
    def instead(self) -> str | None:
        """File stem of `vectors`; None without such a file."""
        return None if self.vectors is None else Path(self.vectors).stem

    def missing(self, source: Source) -> Sequence[str]:
        """The corpus if the source lacks it; with `vectors`, what is wrong with the file."""
        if self.vectors is None:
            if self.corpus == "ptb" and not isinstance(source, LocalSource):
                return [
                    "the Penn Treebank is licensed, so no source but your own folder has it: put "
                    "ptb/train.txt (one sentence a line) into ISOTRAIN_DATA_DIR and use "
                    "source=local, or use analysis.corpus=wikitext-2"
                ]
            return super().missing(source)
        try:
            open_vectors(self.vectors, self.tokens)
        except ValueError as error:
            return [str(error)]
        return []

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus; empty if `vectors` replaces it."""
        return [data_set_of(self.corpus, {"ptb": PTB})] if self.vectors is None else []

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The sample, each layer, and the LID of all layers."""
        most = subject.encoder.max_positions
        if self.instead is None and self.text == "chunks" and most and self.chunk > most:
            raise CannotRunError(
                f"analysis.chunk must be at most {most}, the positions of this encoder, got "
                f"{self.chunk}; set analysis.chunk={most}"
            )
        if self.vectors is None:
            layers: Sequence[int] = range(subject.encoder.n_blocks + 1)
        else:
            layers = open_vectors(self.vectors, self.tokens).layers
        drawn = self.map_layers
        if drawn is None:
            drawn = [layers[0], layers[len(layers) // 2], layers[-1]]
        if absent := sorted({*drawn} - {*layers}):
            raise CannotRunError(
                f"analysis.map_layers must be among {', '.join(map(str, layers))}, got {absent}"
            )
        sample = cache(lambda: self._sample(subject))  # tokenised once, if it is needed at all
        yield Part("sample", lambda: Found([self._facts(sample())]))
        for layer in layers:
            yield Part(f"layer-{layer}", partial(self._layer, subject, sample, layer, drawn))
        lid = self.n_neighbors, self.lid_queries, subject.seed
        yield Part("lid", lambda: measure_lid(sample(), *lid))

    def _sample(self, subject: Subject) -> Sample:
        if self.vectors is not None:
            opened = open_vectors(self.vectors, self.tokens)
            return sample_vectors(opened, self.max_rows, subject.seed)
        subject.tell(f"tokenising {self.corpus}")
        texts = read_texts(
            subject, self.corpus, self.splits, self.text, self.chunk, self.max_tokens
        )
        return sample_encoder(subject, texts, self.max_rows)

    def _facts(self, sample: Sample) -> Record:
        if self.vectors is not None:
            corpus, text = Path(self.vectors).name, "vectors that were given; no encoder was used"
        else:
            corpus = f"{self.corpus} ({', '.join(self.splits)})"
            text = f"chunks of {self.chunk} tokens" if self.text == "chunks" else "sentences"
        settings = {"n_neighbors": self.n_neighbors, "k_max": self.k_max, "cut": self.cut}
        settings["silhouette_rows"] = self.silhouette_rows
        return {"kind": "sample", "corpus": corpus, "text": text, **sample.facts, **settings}

    def _layer(
        self, subject: Subject, sample: Callable[[], Sample], layer: int, drawn: Sequence[int]
    ) -> Found:
        subject.tell(f"clusters of layer {layer}")
        rule = self.k_max, self.cut, self.silhouette_rows
        n_map = self.map_rows if layer in drawn else 0
        return measure_layer(sample(), layer, n_map, rule, subject.seed)
