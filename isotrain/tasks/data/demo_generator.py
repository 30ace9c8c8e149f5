"""The demo source: small English data sets from a grammar, without files or a network.

A bag of words cannot solve them: who did what to whom (rte, snli), which sense a word has (wic),
how far two events differ under paraphrase (stsb). Text (wikitext-2) has events in tokenised
paragraphs. Fields are those of the real sets.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from isotrain.resources import lexicon
from isotrain.tasks.data.sources import DataSet, Source

if TYPE_CHECKING:  # torch is not needed to draw a sentence
    from isotrain.types import Row

SIZES: Mapping[str, int] = {"train": 3000, "dev": 500, "test": 500}
_FOLDS: tuple[str, ...] = ("dev", "test", *["train"] * 6)


class DemoSource(Source):
    """Rows for rte, wic, stsb, snli and wikitext-2; equal seeds give equal rows everywhere."""

    def __init__(self, seed: int = 0) -> None:
        # Bump v1 whenever a change here or in the lexicon alters a single emitted row.
        self.revision = f"demo-v1-seed{seed}"

    def missing(self, data_set: DataSet) -> str | None:
        """A data set that is not generated, with the fix; else None."""
        if data_set.name in _TASKS:
            return None
        return (
            f"source=demo has {', '.join(_TASKS)}, not {data_set.name}; use source=local "
            "(ISOTRAIN_DATA_DIR) or source=hub"
        )

    def revision_of(self, data_set: DataSet) -> str:
        """Version and seed of the generator, for the record."""
        return self.revision

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Rows of a split of the generated data set of that name."""
        if problem := self.missing(data_set):
            raise FileNotFoundError(problem)
        return self.rows(data_set.name, split)

    def rows(self, name: str, split: str) -> list[Row]:
        """All rows of one split, in a shuffled but reproducible order.

        >>> DemoSource().rows("rte", "dev")[0].keys()
        dict_keys(['sentence1', 'sentence2', 'label', 'idx'])
        """
        rng = random.Random(f"{self.revision}/{name}/{split}")
        draw = _TASKS[name]
        seen: set[tuple[str, ...]] = set()
        rows: list[Row] = []
        while len(rows) < SIZES[split]:
            new_rows = draw(rng, len(rows))
            fields = _OWNERS.get(name, ("sentence1", "sentence2"))
            texts = tuple(sorted(str(new_rows[0][field]) for field in fields))
            if texts not in seen and _fold(texts) == split:
                seen.add(texts)
                rows += new_rows
        del rows[SIZES[split] :]
        rng.shuffle(rows)
        return [{**row, "idx": idx} for idx, row in enumerate(rows)]


def _fold(texts: tuple[str, ...]) -> str:
    """The split that owns texts. It depends on them alone: no pair is ever in two splits."""
    return _FOLDS[zlib.crc32("\n".join(texts).encode()) % len(_FOLDS)]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# rte: the hypotheses of a pattern share their words across labels; order and roles decide.

_SYNONYM_SLOTS: Mapping[tuple[str, ...], tuple[tuple[str, str], ...]] = {
    ("a", "b", "x"): lexicon.PEOPLE,
    ("saw", "heard"): tuple((first[1], second[1]) for first, second in lexicon.ACTIONS),
    ("where", "elsewhere"): lexicon.PLACES,
    ("when",): lexicon.TIMES,
}


def _draw_entailment(rng: random.Random, number: int) -> list[Row]:
    label = number % 2
    premise, *by_label = rng.choice(lexicon.ENTAILMENTS)
    slots: dict[str, str] = {}
    for slot_names, pairs in _SYNONYM_SLOTS.items():
        for slot, pair in zip(slot_names, rng.sample(pairs, len(slot_names)), strict=True):
            slots[slot], slots[slot.upper()] = rng.sample(pair, 2)  # in capitals: a synonym
    slots["kind"], slots["sort"] = rng.sample(list(lexicon.KINDS), 2)
    slots["thing"] = rng.choice(lexicon.KINDS[slots["kind"]])
    slots["item"] = rng.choice(lexicon.KINDS[slots["sort"]])
    slots["did"] = rng.choice(lexicon.DEEDS)
    hypothesis = rng.choice(by_label[label])
    row = {
        "sentence1": _sentence(premise.format_map(slots)),
        "sentence2": _sentence(hypothesis.format_map(slots)),
        "label": label,
    }
    return [row]


# wic: the label is an exclusive or of the two contexts, so no word speaks for either class.


def _draw_senses(rng: random.Random, number: int) -> list[Row]:
    label = number % 2
    (word, pos, form), senses = rng.choice(list(lexicon.SENSES.items()))
    if label:
        first, second = rng.sample(rng.choice(senses), 2)
    else:
        first, second = map(rng.choice, rng.sample(senses, 2))
    sentence1, start1 = _in_context(rng, first, form)
    sentence2, start2 = _in_context(rng, second, form)
    row = {
        "word": word,
        "sentence1": sentence1,
        "sentence2": sentence2,
        "start1": start1,
        "end1": start1 + len(form),
        "start2": start2,
        "end2": start2 + len(form),
        "label": bool(label),
        "pos": pos,
    }
    return [row]


def _in_context(rng: random.Random, clause: str, form: str) -> tuple[str, int]:
    """A sentence around the clause, with the offset of the target word in it."""
    person = rng.choice(rng.choice(lexicon.PEOPLE))
    opening, trait = rng.choice(lexicon.OPENINGS), rng.choice(lexicon.TRAITS)
    subject = rng.choice((f"{opening} the {person}", f"the {trait} {person}"))
    wording = re.sub(r"\[(.+?)\]", lambda match: rng.choice(match[1].split("|")), clause)
    sentence = _sentence(f"{subject} {wording}")
    return sentence.replace("_", form), sentence.index("_")


# stsb: two events in different words; each slot on which they disagree costs its weight.


_Event = dict[str, Any]  # the synonyms of each slot, and whether it is negated
_WEIGHTS: Mapping[str, float] = {
    "agent": 1.25, "action": 1.5, "patient": 1.25, "place": 0.5, "time": 0.5, "negated": 1.5,
}  # fmt: skip
_SWAP_WEIGHT = 1.75
_PARAPHRASE_RATE = 0.75


def _draw_similarity(rng: random.Random, _number: int) -> list[Row]:
    event = _draw_event(rng)
    other_event = _edit(rng, event)
    voices = _draw_voices(rng)
    other_voices = _other_voices(rng, voices)
    edited_slots = {slot for slot in _WEIGHTS if event[slot] != other_event[slot]}
    penalty = sum(weight for slot, weight in _WEIGHTS.items() if slot in edited_slots)
    if (event["agent"], event["patient"]) == (other_event["patient"], other_event["agent"]):
        penalty += _SWAP_WEIGHT - _WEIGHTS["agent"] - _WEIGHTS["patient"]
    row = {
        "sentence1": _tell(rng, event, voices),
        "sentence2": _tell(rng, other_event, other_voices),
        "score": max(0.0, 5.0 - penalty),
    }
    return [row]


def _draw_voices(rng: random.Random) -> list[int]:
    """Which of two wordings each slot has."""
    return [rng.randrange(2) for _ in _WEIGHTS]


def _other_voices(rng: random.Random, voices: list[int]) -> list[int]:
    return [voice ^ (rng.random() < _PARAPHRASE_RATE) for voice in voices]


def _draw_event(rng: random.Random) -> _Event:
    agent, patient = rng.sample(lexicon.PEOPLE, 2)
    return {
        "agent": agent,
        "action": rng.choice(lexicon.ACTIONS),
        "patient": patient,
        "place": rng.choice(lexicon.PLACES),
        "time": rng.choice(lexicon.TIMES),
        "negated": rng.random() < 0.5,
    }


def _edit(rng: random.Random, event: _Event) -> _Event:
    """Another event: some slots drawn anew, and the roles often swapped."""
    new_event = _draw_event(rng)
    slots = rng.sample(list(_WEIGHTS), rng.choice((0, 0, 1, 1, 2, 3, 4, 6)))
    edited = event | {slot: new_event[slot] for slot in slots}
    if edited["agent"] == edited["patient"] or rng.random() < 0.4:
        return _swapped(edited, event)
    return edited


def _swapped(event: _Event, roles: _Event) -> _Event:
    """An event with the roles of another one, swapped."""
    return event | {"agent": roles["patient"], "patient": roles["agent"]}


def _tell(rng: random.Random, event: _Event, voices: list[int]) -> str:
    """One wording of an event; the voices pick a synonym for each slot."""
    agent, (base, past), patient, place, time = (
        event[slot][voice] for slot, voice in zip(tuple(_WEIGHTS)[:5], voices[:5], strict=True)
    )
    if rng.random() < 0.5:
        verb = (f"did not {base}", f"never {past}")[voices[5]] if event["negated"] else past
        core = f"the {agent} {verb} the {patient}"
    else:
        denial = ("not ", "never ")[voices[5]] if event["negated"] else ""
        core = f"the {patient} was {denial}{past} by the {agent}"
    return _sentence(rng.choice((f"{core} {place} {time}", f"{time} {core} {place}")))


# snli: three hypotheses a premise; the same event, its roles swapped, or its denial.


def _draw_inferences(rng: random.Random, _number: int) -> list[Row]:
    event, voices = _draw_event(rng), _draw_voices(rng)
    swapped = _swapped(event, event)
    denied = event | {"negated": not event["negated"]}
    premise = hypothesis = _tell(rng, event, voices)
    rows: list[Row] = []
    for label, claim in enumerate((event, swapped, denied)):
        while hypothesis == premise:
            hypothesis = _tell(rng, claim, _other_voices(rng, voices))
        rows.append({"premise": premise, "hypothesis": hypothesis, "label": label})
        hypothesis = premise
    return rows


# wikitext-2: paragraphs, their words and stops between spaces.


def _draw_paragraph(rng: random.Random, _number: int) -> list[Row]:
    sentences = [_tell(rng, _draw_event(rng), _draw_voices(rng)) for _ in range(rng.randint(1, 3))]
    return [{"text": "".join(f" {sentence[:-1]} ." for sentence in sentences) + " "}]


_TASKS: Mapping[str, Callable[[random.Random, int], list[Row]]] = {
    "rte": _draw_entailment,
    "wic": _draw_senses,
    "stsb": _draw_similarity,
    "snli": _draw_inferences,
    "wikitext-2": _draw_paragraph,
}
# What is in one split alone, where it is not the pair of sentences.
_OWNERS: Mapping[str, tuple[str, ...]] = {"snli": ("premise",), "wikitext-2": ("text",)}
