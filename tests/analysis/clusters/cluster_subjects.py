"""Tiny encoders, texts and measured outcomes for the tests of the clusters analysis."""

from functools import partial
from itertools import permutations

from isotrain.analysis.clusters.analysis import read_texts
from isotrain.analysis.types import Subject
from tests.analysis.runs import Rows, rows_of, subject_on, tiny

LINES = [
    " The old dog sees the cat . ",
    " = The dog = ",
    " A dog , a cat and the <unk> dog . ",
    " The cat likes the red bird near the old bank . ",
    " The dog follows a small quiet horse . ",
]
MANY = LINES + [
    f" The {adjective} {first} {verb} the {second} . "
    for adjective in ("old", "small", "red")
    for first, second in permutations(("dog", "cat", "horse", "bird"), 2)
    for verb in ("sees", "likes")
]


BERT, GPT2 = partial(tiny, "bert"), partial(tiny, "gpt2", n_blocks=3)


def subject_of(encoder, folder, source=None, seed=0, batch_size=4):
    source = source or Rows(train=rows_of(MANY))
    return subject_on(encoder, source, folder, seed, batch_size, max_length=32)


def texts_of(encoder, chunk=8, lines=LINES, max_tokens=200_000, seed=0):
    subject = Subject(encoder, Rows(train=rows_of(lines)), seed, 4, 32, None)
    return read_texts(subject, "wikitext-2", ["train"], chunk, max_tokens)


SMALL = {"chunk": 16, "max_rows": 300, "k_max": 4, "n_neighbors": 10, "map_rows": 50}
