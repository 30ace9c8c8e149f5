"""A random two-block BERT with an in-memory tokenizer: seconds on a CPU, no files, no hub."""

import string
from typing import Annotated, Any

from pydantic import Field

from isotrain.arguments import checked
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.resources.lexicon import WORDS


@checked
def build_tiny(
    width: Annotated[int, Field(ge=1)],
    n_blocks: Annotated[int, Field(ge=1, le=1000)],
    n_heads: Annotated[int, Field(ge=1)],
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
) -> TransformerEncoder:
    """A BERT of random weights whose vocabulary is the demo lexicon plus single characters.

    Weights come from the global random state, like those of the head: seed it first. `dropout` is
    the rate for hidden units and attention weights, in [0, 1).
    """
    from transformers import BertConfig, BertModel

    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=n_blocks,
        num_attention_heads=n_heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return TransformerEncoder(
        BertModel(config, add_pooling_layer=False),
        tokenizer,
        f"tiny random BERT, width {width}, {n_blocks} blocks",
    )


def tiny_tokenizer() -> Any:
    """A tokenizer of the demo lexicon; words outside of it are split into characters."""
    from transformers import BertTokenizer

    characters = string.ascii_lowercase + string.digits + string.punctuation
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *characters, *("##" + c for c in characters), *WORDS]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True)
