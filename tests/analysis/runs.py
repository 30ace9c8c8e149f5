"""Analyses that tests run in process: sources, encoders, subjects, what is found."""

import pytest
import torch
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
)

from isotrain.analysis.types import Outcome, Subject
from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.on_disk import packaged_folder
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder

SMALL = {  # arguments with which an analysis is one of seconds
    "contextuality": {
        **{"corpus": "rte", "splits": ["train"], "ranked_words": 2},
        "words": ["the", "xyz"],
    },
    "tails": {"corpus": "snli", "max_rows": 600, "max_pairs": 20, "min_count": 2, "threshold": 1.0},
    "clusters": {
        **{"chunk": 8, "max_rows": 200, "cut": -1.0, "k_max": 3},
        **{"n_neighbors": 10, "map_rows": 30},
    },
    "data_scale": {"tasks": ["rte", "chunks"], "seeds": 2, "smallest": 16},
    "layer_probe": {"max_train": 40, "penalties": [1.0]},
    "structure_probe": {
        **{"tasks": ["pos", "chunks", "depth", "length"], "penalties": [1.0]},
        **{"max_train": 50, "max_eval": 20},
    },
    "word_senses": {"penalties": [1.0], "max_rows": 300, "threshold": 1.0},
    "phrase_grammar": {"max_rows": 300, "threshold": 1.0},
    "attention": {"max_sentences": 8},
    "offline_isotropy": {
        **{"fit_on": "test", "n_clusters": 2, "n_components": 2, "n_directions": 2},
        **{"n_resamples": 50},
    },
}


def tiny(kind="bert", width=16, n_blocks=2, seed=0):
    """A random bert, distilbert, roberta or gpt2 in evaluation mode, the same each time."""
    torch.manual_seed(seed)
    if kind == "bert":
        return build_tiny(width, n_blocks, 2).eval()
    tokenizer = build_tiny(8, 1, 1).tokenizer
    n = len(tokenizer)
    size = {"n_embd": width, "n_layer": n_blocks, "n_head": 2, "n_positions": 64}
    if kind == "roberta":
        shape = {"hidden_size": width, "num_hidden_layers": n_blocks, "num_attention_heads": 2}
        model = RobertaModel(RobertaConfig(vocab_size=n, intermediate_size=32, **shape))
    elif kind == "distilbert":
        size = {"dim": width, "n_layers": n_blocks, "n_heads": 2, "hidden_dim": 32}
        model = DistilBertModel(DistilBertConfig(vocab_size=n, **size))
    else:
        model = GPT2Model(GPT2Config(vocab_size=n, **size))
    return TransformerEncoder(model, tokenizer, f"tiny random {kind}").eval()


def minilm():
    """MiniLM of the extra `demo` in evaluation mode; a test is skipped without it."""
    if (folder := packaged_folder()) is None:
        pytest.skip("isotrain[demo] is not installed")
    return load_encoder(str(folder)).eval()


class Rows:
    """A source of given rows by split, the same for every data set."""

    def __init__(self, **splits):
        self.splits = splits

    def missing(self, data_set):
        return None

    def revision_of(self, data_set):
        return "rows of a test"

    def read(self, data_set, split):
        return self.splits.get(split, [])


def rows_of(sentences):
    """Rows of a split: each sentence as a text, and as the first one of a pair."""
    pair = {"sentence2": sentences[0], "label": 0, "score": 1.0}
    return [{**pair, "sentence1": one, "text": one, "sentence": one} for one in sentences]


def subject_on(encoder, source, folder, seed=0, batch_size=8, max_length=64):
    """A subject that keeps its rows in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return Subject(encoder, source, seed, batch_size, max_length, folder)


def pieces_of(tokenizer, tokens, spans):
    """The pieces of each span."""
    at = zip(spans.sentence_N, spans.start_N, spans.stop_N, strict=True)
    return [tokenizer.convert_ids_to_tokens(tokens.ids[i][start:stop]) for i, start, stop in at]


def outcome_of(analysis, subject, weights=("as given",)):
    """All that the parts of an analysis find, as if of each of some weights."""
    records, arrays = [], {}
    for one in weights:
        for part in analysis.parts(subject):
            found = part.measure()
            records += [{"weights": one, **record} for record in found.records]
            arrays |= {f"{one}/{key}": array for key, array in found.arrays.items()}
    return Outcome(records, arrays)


def records_of(analysis, subject, weights="as given"):
    """The records alone."""
    return outcome_of(analysis, subject, (weights,)).records


def of(outcome, kind=None, **where):
    """The records of a kind that have some values."""
    where |= {} if kind is None else {"kind": kind}
    return [r for r in outcome.records if all(r.get(k) == v for k, v in where.items())]
