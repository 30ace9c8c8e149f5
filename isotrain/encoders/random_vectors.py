"""Random word vectors as an encoder: the untrained baseline. V tokens, D dimensions."""

from typing import Annotated, Any

import torch
from pydantic import Field

from isotrain.arguments import checked
from isotrain.encoders.huggingface import load_tokenizer
from isotrain.encoders.on_disk import packaged_folder
from isotrain.encoders.static import TableEncoder
from isotrain.encoders.tiny import tiny_tokenizer
from isotrain.geometry.rng import rng_stream

TINY, MINILM = "tiny", "sentence-transformers/all-MiniLM-L6-v2"


@checked
def build_random_vectors(
    vocabulary: str,
    revision: str | None,
    width: Annotated[int, Field(ge=1)] = 300,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> TableEncoder:
    """Random vectors for the vocabulary of another encoder, which is not loaded.

    Args:
        vocabulary: a hub id or folder with a tokenizer, or `tiny` for that of `encoder=tiny`.
            MiniLM's is taken from the extra `isotrain[demo]` if installed.
        revision: commit of the hub; None = the newest. A folder and `tiny` have none.
        width: D.
        seed: of the vectors.

    Raises:
        EncoderUnavailableError: no such tokenizer on disk, and the hub does not respond.
    """
    if vocabulary == TINY:
        return random_vectors(tiny_tokenizer(), width, seed, vocabulary)
    folder = packaged_folder() if vocabulary == MINILM else None
    name, commit = (vocabulary, revision) if folder is None else (str(folder), None)
    return random_vectors(load_tokenizer(name, commit), width, seed, vocabulary)


def random_vectors(tokenizer: Any, width: int, seed: int, vocabulary: str) -> TableEncoder:
    """A fixed random vector per token: its D coordinates are normal with variance 1/D.

    The expected squared norm is 1. Special and unknown tokens have a vector too. Vectors are a
    function of the seed, V and D; the global random state is unchanged.

    >>> encoder = random_vectors(tiny_tokenizer(), 64, 0, "tiny")
    >>> round(encoder.embeddings.weight.square().sum(dim=1).mean().item(), 1)
    1.0
    """
    with rng_stream(seed, "random_vectors"):
        table_VD = torch.randn(len(tokenizer), width) / width**0.5
    source_id = f"random vectors, D = {width}, seed {seed}, vocabulary of {vocabulary}"
    return TableEncoder(table_VD, tokenizer, source_id)
