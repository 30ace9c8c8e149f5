"""An analysis of no time, for tests of what runs them: mean rows of a few sentences."""

import numpy as np

from isotrain.analysis.charts import scatter
from isotrain.analysis.data_sets import TEXTS, read_corpus
from isotrain.analysis.encode import encode_rows, tokenise, whole_sentences
from isotrain.analysis.types import Analysis, Part, PartResult, Picture, Table

N_SENTENCES = 10


class Toy(Analysis):
    """`calls` notes what is measured; `stop(name)`, where it is set, is called before a part."""

    name, question = "toy", "What are the mean rows?"
    calls, stop = [], None

    def __init__(self, corpus="rte", published=(), parts=("first", "second")):
        self.data_set, self.corpus = TEXTS[corpus].data_set, corpus
        self.published, self.names = published, tuple(parts)

    def data_sets(self, source):
        return [self.data_set]

    def parts(self, subject):
        for name in self.names:
            yield Part(name, lambda name=name: self._measured(subject, name))

    def _measured(self, subject, name):
        Toy.calls.append(name)
        if Toy.stop:
            Toy.stop(name)
        sentences = read_corpus(subject.source, self.corpus, ["dev"], "[UNK]")
        tokens = tokenise(subject.encoder.tokenizer, sentences[:N_SENTENCES], subject.max_length)
        rows = encode_rows(subject, tokens, whole_sentences(tokens))
        records = [
            {"part": name, "layer": layer, "mean": float(np.mean(x)), "seed": subject.seed}
            for layer, x in enumerate(rows)
        ]
        return PartResult(records, {name: np.array(rows[-1])})

    def tables(self, outcome):
        columns = ("weights", "part", "layer", "mean")
        yield Table("means", "Means", columns, [[r[c] for c in columns] for r in outcome.records])

    def pictures(self, outcome):
        colour = {"field": "token", "type": "nominal"}
        chart = scatter(np.eye(3)[:, :2], "Points", "Three points.", ["a", "b", "c"], colour)
        yield Picture("points", "Points", [chart], "Three points, of nothing.")
