"""Sentences with annotated words, and the embeddings of their words: trees, chunks, senses.

N words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isotrain.analysis.encode import Spans, Tokens, overlapping, tokenise
from isotrain.geometry.groups import hashed_order
from isotrain.tasks.data.sources import DataSet, Source, load_split

TREEBANK = DataSet(
    name="treebank_sample",
    fields={"tree": str},
    target="",
    files=("all.jsonl",),
    needs=("train",),
)
CHUNKS = DataSet(
    name="conll2000",
    fields={"tokens": list[str], "chunks": list[str]},
    target="",
    needs=("train", "test"),
)
SENSES = DataSet(
    name="senseval2",
    fields={"lemma": str, "tokens": list[str], "position": int, "sense": str},
    target="",
    files=("all.jsonl",),
    needs=("train",),
)
BRACKETS = ("-LRB-", "-RRB-")  # tags of brackets; those of other punctuation have no letter
TRACE = "-NONE-"  # tag of what is not said


class Parse(NamedTuple):
    """A sentence with its constituents."""

    words: list[str]
    tags: list[str]
    depths: list[int]  # number of constituents around each word
    spans: Mapping[tuple[int, int], set[str]]  # labels of the words from start to stop (exclusive)

    @property
    def is_word(self) -> list[bool]:
        """Whether each token is a word, not punctuation or a currency symbol."""
        return [*map(is_word_tag, self.tags)]


def is_word_tag(tag: str) -> bool:
    """Whether a tag is that of a word, not of punctuation or a symbol.

    >>> is_word_tag("VBD"), is_word_tag("-LRB-"), is_word_tag("``")
    (True, False, False)
    """
    return tag not in BRACKETS and any(map(str.isalpha, tag))


def parsed(tree: str) -> Parse:
    """The sentence of a tree in brackets, as in the Penn Treebank.

    Function tags are dropped: `NP-SBJ` becomes `NP`; so are traces (`-NONE-`).

    >>> found = parsed("(S (NP-SBJ (DT the) (NN dog)) (VP (VBZ barks)) (. .))")
    >>> found.words, found.depths, found.is_word
    (['the', 'dog', 'barks', '.'], [2, 2, 2, 1], [True, True, True, False])
    >>> found.spans
    {(0, 2): {'NP'}, (2, 3): {'VP'}, (0, 4): {'S'}}
    """
    parse = Parse([], [], [], {})
    spans: dict[tuple[int, int], set[str]] = {}
    stack: list[tuple[str, int]] = []  # label and start of each constituent or word
    for opens, label, word in re.findall(r"(\()\s*([^\s()]*)|([^\s()]+)|\)", tree):
        if opens:
            stack.append((label, len(parse.words)))
        elif word:
            if (tag := stack[-1][0]) != TRACE:
                parse.words.append(word)
                parse.tags.append(tag)
                parse.depths.append(len(stack) - 1)
            stack[-1] = "", len(parse.words)  # a word is not a constituent
        else:
            label, start = stack.pop()
            if start < len(parse.words):
                labels = spans.setdefault((start, len(parse.words)), set())
                labels.add(re.split("[-=]", label)[0])
    return parse._replace(spans=spans)


def parses(source: Source) -> list[Parse]:
    """The distinct sentences of the treebank, in order."""
    sentences = (parsed(row["tree"]) for row in load_split(source, TREEBANK, "train"))
    return [*{tuple(sentence.words): sentence for sentence in sentences}.values()]


def chunked(source: Source, split: str) -> list[tuple[list[str], list[str]]]:
    """Words and chunk tags of the sentences of a split.

    Raises:
        ValueError: a sentence with another number of tags than of words.
    """
    pairs = []
    for row in load_split(source, CHUNKS, split):
        words, tags = [*row["tokens"]], [*row["chunks"]]
        if len(words) != len(tags):
            raise ValueError(
                f"{row['at']}: tokens and chunks must be as many, got {len(words)} and {len(tags)}"
            )
        pairs.append((words, tags))
    return pairs


def word_characters(words: Sequence[str]) -> list[tuple[int, int]]:
    """The half-open character span of each word, of words that spaces join.

    >>> word_characters(["10 000", "dogs"])
    [(0, 6), (7, 11)]
    """
    end_W = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, end_W, strict=True)]


class WordSpans(NamedTuple):
    """Tokens of sentences, and the span of each word not truncated by `max_length`."""

    tokens: Tokens
    spans: Spans
    word_N: np.ndarray  # of its sentence, from 0


def find_words(
    tokenizer: Any,
    sentences: Sequence[Sequence[str]],
    max_length: int,
    positions: Sequence[Sequence[int]] | None = None,
) -> WordSpans:
    """Token spans of the words of sentences; words are joined by spaces.

    Args:
        tokenizer: a fast one.
        sentences: their words.
        max_length: tokens of a sentence at most.
        positions: positions of the words of each sentence; None = all.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> found = find_words(build_tiny(8, 1, 1).tokenizer, [["the", "king", "xy"]], 16)
    >>> found.spans.start_N.tolist(), found.spans.stop_N.tolist(), found.word_N.tolist()
    ([1, 2, 3], [2, 3, 5], [0, 1, 2])
    """
    texts = [" ".join(words) for words in sentences]
    tokens = tokenise(tokenizer, texts, max_length)
    rows = []
    for i, words in enumerate(sentences):
        characters = word_characters(words)
        for k in range(len(words)) if positions is None else positions[i]:
            if span := overlapping(tokens, i, *characters[k]):
                rows.append((*span, k))
    *spans, word_N = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return WordSpans(tokens, Spans(*spans), word_N)


def three_parts(n: int, seed: int) -> np.ndarray:
    """`train`, `dev` or `test` of n items: 60, 20 and 20 %, drawn by a hash of the seed.

    >>> np.unique(three_parts(10, seed=0), return_counts=True)[1].tolist()
    [2, 2, 6]
    """
    part_N = np.full(n, "train", dtype=object)
    first, second = n // 5, 2 * (n // 5)
    order_N = hashed_order(n, seed).numpy()
    part_N[order_N[:first]], part_N[order_N[first:second]] = "test", "dev"
    return part_N
