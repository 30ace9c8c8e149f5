"""Sentences of running text, for contrastive training without labels (WikiText-2)."""

from __future__ import annotations

from typing import Annotated, Any

from isotrain.arguments import Bounds, checked
from isotrain.tasks.contrastive import Contrastive
from isotrain.tasks.data.sources import DataSet, Source, load_split
from isotrain.tasks.stsb import DATA as EVALUATION
from isotrain.tasks.wikitext import UNKNOWN, as_written, is_heading, n_words, split_sentences
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


class Text(Contrastive):
    """One sentence an example, from the training paragraphs of WikiText-2 (Merity et al. 2017).

    Headings and blank lines are left out; paragraphs are cut into sentences as `split_sentences`
    says, and those written as ordinary text, each once. Rare words are the tokenizer's unknown
    token. Rows that no example comes from are counted by reason in `left_out`.

    Args: those of `Contrastive`, and
        min_words: words of a sentence at least, rare words (`<unk>`) not counted.
    """

    data_sets = DATA, EVALUATION
    name = "text"

    @checked
    def __init__(
        self,
        min_words: Annotated[int, Bounds(1)] = 4,
        max_length: Annotated[int, Bounds(3)] = 128,
        train_length: Annotated[int, Bounds(3)] = 32,
    ) -> None:
        super().__init__(max_length, train_length)
        self.min_words = min_words

    def training_rows(self, source: Source) -> list[Row]:
        """One sentence a row, in `sentence1`.

        Raises:
            ValueError: no sentence is long enough.
        """
        lines = [row for row in load_split(source, DATA, "train") if row["text"].strip()]
        paragraphs = [row for row in lines if not is_heading(row["text"])]
        self.leave_out("train: headings", len(lines) - len(paragraphs))
        found = [(s, row["at"]) for row in paragraphs for s in split_sentences(row["text"])]
        kept = [(s, at) for s, at in found if n_words(s) >= self.min_words]
        self.leave_out(f"train: fewer than {self.min_words} words", len(found) - len(kept))
        once: dict[str, str] = {}
        for sentence, at in kept:
            once.setdefault(sentence, at)
        self.leave_out("train: repeated", len(kept) - len(once))
        if not once:
            raise ValueError(
                f"none of {len(found)} sentences in {source.revision_of(DATA)} has "
                f"task.min_words={self.min_words} words; lower it"
            )
        return [{"sentence1": as_written(s), "at": at} for s, at in once.items()]

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Each sentence as a sequence, with the tokenizer's own token for unknown words."""
        unknown = tokenizer.unk_token or UNKNOWN
        rows = [{**row, "sentence1": row["sentence1"].replace(UNKNOWN, unknown)} for row in rows]
        return super().encode(rows, tokenizer)
