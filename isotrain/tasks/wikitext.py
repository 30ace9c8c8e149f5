"""Sentences of WikiText paragraphs: where they end, and how they read without the token spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

UNKNOWN = "<unk>"  # a rare word, as WikiText-2 has it
ENDS = (".", "!", "?")
BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}

_REPLACED = (  # in this order; a token ends at a space or at the end of the text
    (r" @([-,.])@ ", r"\1"),  # well @-@ known, 10 @,@ 000, 1 @.@ 5
    (r'(?<!\S)" (.+?) "(?!\S)', r'"\1"'),
    (r" ([,.;:!?%)\]]|\.{2,}|'(?:s|t|re|m|ve|ll|d))(?=[\s\"]|$)", r"\1"),
    (r"(?<![^\s\"])([(\[$£€]) ", r"\1"),
)


def is_heading(line: str) -> bool:
    """Whether a line of WikiText is a heading.

    >>> is_heading(" = = Habitat = = "), is_heading(" x = 3 . ")
    (True, False)
    """
    return re.fullmatch(r"\s*= .* =\s*", line) is not None


def split_sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a tokenised paragraph, in order; joined by spaces they are the paragraph.

    A sentence ends after a token `.`, `!` or `?`, and the quotes and brackets that close behind
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
