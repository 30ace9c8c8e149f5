"""Sentences of STS-B without their scores, for contrastive training in the domain of its dev."""

import re

from isotrain.tasks.contrastive import SENTENCES, STSB, Contrastive
from isotrain.tasks.data.sources import Source, load_split
from isotrain.types import Row

PAIR = SENTENCES[:2]  # of a scored row


def words(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, without case and punctuation.

    >>> words("A man  is here.") == words("a man is here")
    True
    """
    return tuple(re.findall(r"\w+", sentence.lower()))


class STSBSentences(Contrastive):
    """One sentence an example, from the training pairs of STS-B, each once; no score is read.

    Sentences that are also in dev or test, up to case, spaces and punctuation, are left out and
    counted in `left_out`.

    Arguments as `Contrastive`.
    """

    data_sets = (STSB,)
    name = "stsb_sentences"

    def training_rows(self, source: Source) -> list[Row]:
        """One sentence a row, in `sentence1`, in the order of the file.

        Raises:
            ValueError: every sentence is one of dev or test.
        """
        train, dev, test = (
            [(row[key], row["at"]) for row in load_split(source, STSB, split) for key in PAIR]
            for split in ("train", "dev", "test")
        )
        origins = self.once(train)
        scored_words = {words(sentence) for sentence, _ in dev + test}
        rows = [
            {"sentence1": s, "at": at} for s, at in origins.items() if words(s) not in scored_words
        ]
        self.leave_out("train: also in dev or test", len(origins) - len(rows))
        if not rows:
            raise ValueError(
                f"all {len(origins)} sentences of train in {source.revision_of(STSB)} are also in "
                "dev or test; give train other sentences"
            )
        return rows
