"""Sentences of running text, for contrastive training without labels (WikiText-2)."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from isotrain.arguments import checked
from isotrain.tasks.contrastive import STSB, Contrastive
from isotrain.tasks.data.sources import DataSet, Source, load_split
from isotrain.types import Example, Row

DATA = DataSet(
    name="wikitext-2",
    fields={"text": str},
    target="",
    hub_id="Salesforce/wikitext",
    hub_config="wikitext-2-v1",
    hub_revision="b08601e04326c79dfdd32d625aee71d232d685c3",
    files=("{}.txt", "wiki.{}.tokens"),
)
UNKNOWN = "<unk>"  # a rare word, as WikiText-2 has it
ENDS = (".", "!", "?")
BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}

_REPLACED = (  # in this order; a token ends at a space or at the end of the text
    (r" @([-,.])@ ", r"\1"),  # well @-@ known, 10 @,@ 000, 1 @.@ 5
    (r'(?<!\S)" (.+?) "(?!\S)', r'"\1"'),
    (r" ([,.;:!?%)\]]|\.{2,}|'(?:s|t|re|m|ve|ll|d))(?=[\s\"]|$)", r"\1"),
    (r"(?<![^\s\"])([(\[$£€]) ", r"\1"),
)


class Text(Contrastive):
    """One sentence an example, from the training paragraphs of WikiText-2 (Merity et al. 2017).

    Headings and blank lines are left out; paragraphs are cut by `split_sentences`, and sentences
    detokenised by `as_written`, each once. Rare words are the tokenizer's unknown token. What is
    left out is counted by reason in `left_out`.

    Args: those of `Contrastive`, and
        min_words: words of a sentence at least, rare words (`<unk>`) not counted.
    """

    data_sets = DATA, STSB
    name = "text"

    @checked
    def __init__(
        self,
        min_words: Annotated[int, Field(ge=1)] = 4,
        max_length: Annotated[int, Field(ge=3)] = 128,
        train_length: Annotated[int, Field(ge=3)] = 32,
        prefix: str = "",
    ) -> None:
        super().__init__(max_length, train_length, prefix)
        self.min_words = min_words

    def training_rows(self, source: Source) -> list[Row]:
        """One sentence a row, in `sentence1`.

        Raises:
            ValueError: no sentence is long enough.
        """
        lines = [row for row in load_split(source, DATA, "train") if row["text"].strip()]
        paragraphs = [row for row in lines if not is_heading(row["text"])]
        self.leave_out("train: headings", len(lines) - len(paragraphs))
        sentences = [(s, row["at"]) for row in paragraphs for s in split_sentences(row["text"])]
        long = [(s, at) for s, at in sentences if n_words(s) >= self.min_words]
        self.leave_out(f"train: fewer than {self.min_words} words", len(sentences) - len(long))
        origins = self.once(long)
        if not origins:
            raise ValueError(
                f"none of {len(sentences)} sentences in {source.revision_of(DATA)} has "
                f"task.min_words={self.min_words} words; lower it"
            )
        return [{"sentence1": as_written(s), "at": at} for s, at in origins.items()]

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Each sentence as a sequence, with the tokenizer's own token for unknown words."""
        unknown = unknown_token(tokenizer)
        rows = [{**row, "sentence1": row["sentence1"].replace(UNKNOWN, unknown)} for row in rows]
        return super().encode(rows, tokenizer)


def unknown_token(tokenizer: Any) -> str:
    """A tokenizer's token for unknown words; `<unk>` if it has none, or one that means else.

    A byte-level BPE knows every word. What GPT-2, Qwen2 and SmolLM2 call their unknown token is
    `<|endoftext|>`.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> unknown_token(build_tiny(8, 1, 1).tokenizer)
    '[UNK]'
    """
    model: Any = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    knows_all = type(model).__name__ == "BPE" and model.unk_token is None
    others = (None, tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)
    token = tokenizer.unk_token
    return UNKNOWN if knows_all or token in others else str(token)


def is_heading(line: str) -> bool:
    """Whether a line of WikiText is a heading.

    >>> is_heading(" = = Habitat = = "), is_heading(" x = 3 . ")
    (True, False)
    """
    return re.fullmatch(r"\s*= .* =\s*", line) is not None


def split_sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a tokenised paragraph, in order; joined by spaces they are the paragraph.

    A sentence ends after a token `.`, `!` or `?`, and the quotes and brackets that close after
    it, where all quotes and brackets are closed and the next token begins neither with a
    lower-case letter nor with one of `.,;:!?`. Quotes (") that do not pair up in the paragraph
    count as words, brackets likewise. There is no list of abbreviations: nearly all stops of
    abbreviations are part of their token (`Mr.`, `U.S.`).

    >>> list(split_sentences('He said : " Go . Now ! " She left ( at 5 p.m. ) . Why ? '))
    ['He said : " Go . Now ! "', 'She left ( at 5 p.m. ) .', 'Why ?']
    """
    tokens = paragraph.split()
    quotes_pair = tokens.count('"') % 2 == 0
    brackets_pair = sum(BRACKETS.get(token, 0) for token in tokens) == 0
    sentence: list[str] = []
    depth, in_quotes, is_over = 0, False, False
    for token in tokens:
        opens_quotes = token == '"' and quotes_pair and not in_quotes
        closes = (token == '"' and not opens_quotes) or token in (")", "]")
        goes_on = closes or token[0].islower() or token[0] in ".,;:!?"
        if is_over and depth == 0 and not in_quotes and not goes_on:
            yield " ".join(sentence)
            sentence = []
        sentence.append(token)
        is_over = token in ENDS or (is_over and closes)
        if token == '"' and quotes_pair:
            in_quotes = not in_quotes
        if brackets_pair:
            depth += BRACKETS.get(token, 0)
    if sentence:
        yield " ".join(sentence)


def n_words(sentence: str) -> int:
    """Tokens with a letter or a digit, rare words (`<unk>`) not among them.

    >>> n_words("The <unk> weighs 2 @.@ 5 kg .")
    5
    """
    words = (token for token in sentence.split() if token != UNKNOWN)
    return sum(any(character.isalnum() for character in word) for word in words)


def as_written(sentence: str) -> str:
    r"""A tokenised sentence with the spaces of ordinary text.

    Hyphens and the points and commas of numbers lose their marks (`@-@`), punctuation and clitics
    (`'s`, `'t`) join the word before them, brackets and quotes (") what they enclose. Single
    quotes stay as they are: they may close a quotation or a plural's genitive.

    >>> as_written('It \'s a well @-@ known " fact " ( of 1 @,@ 000 ) , he said .')
    'It\'s a well-known "fact" (of 1,000), he said.'
    """
    for pattern, replacement in _REPLACED:
        sentence = re.sub(pattern, replacement, sentence)
    return sentence
