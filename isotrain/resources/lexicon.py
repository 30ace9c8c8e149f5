"""The small English lexicon of the demo grammar, read from `lexicon.json`.

`[a|b]` offers a choice, `_` is where the target word goes, `{slot}` is filled by the grammar.
"""

import json
import re
from importlib.resources import files
from typing import Any


def _frozen(node: Any) -> Any:
    """Parsed JSON with tuples for lists."""
    if isinstance(node, dict):
        return {key: _frozen(value) for key, value in node.items()}
    return tuple(map(_frozen, node)) if isinstance(node, list) else node


def _words(node: Any) -> set[str]:
    """The words in every string below a node, without slots and marks."""
    if isinstance(node, str):
        return set(re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", node).lower()))
    if isinstance(node, dict):
        node = tuple(node.items())
    return set().union(*map(_words, node))


_TEXT = (files("isotrain.resources") / "lexicon.json").read_text(encoding="utf-8")
_STOCK: dict[str, Any] = _frozen(json.loads(_TEXT))

# Synonym sets: every member names the same concept.
PEOPLE: tuple[tuple[str, str], ...] = _STOCK["people"]
PLACES: tuple[tuple[str, str], ...] = _STOCK["places"]
TIMES: tuple[tuple[str, str], ...] = _STOCK["times"]
# (base form, past form) pairs; the past form is also the participle.
ACTIONS: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = _STOCK["actions"]

# Entailment. No deed may name a thing of the kinds: it would support a hypothesis by chance.
DEEDS: tuple[str, ...] = _STOCK["deeds"]
KINDS: dict[str, tuple[str, ...]] = _STOCK["kinds"]
# (premise, hypotheses that follow, hypotheses that do not). In capitals: the other name of a
# concept. {x}, {heard}, {elsewhere} and {sort} are concepts foreign to the premise, unless {sort}
# is that of the {item}. Both lists draw on one stock of words: no word gives the label away. In the
# first eight the meaning of a word decides, in the last four its position.
ENTAILMENTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = _STOCK["entailments"]

# Words in context.
OPENINGS: tuple[str, ...] = _STOCK["openings"]
TRAITS: tuple[str, ...] = _STOCK["traits"]
# (word, part of speech, form in the text) -> the clauses of its two senses.
SENSES: dict[tuple[str, str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    (entry["word"], entry["pos"], entry["form"]): entry["senses"] for entry in _STOCK["senses"]
}

# Every lower-case word that the grammar can emit, its own grammatical words included.
_TEXTS = [value for name, value in _STOCK.items() if name != "senses"]
_GRAMMAR = "the was by did not never"
WORDS: tuple[str, ...] = tuple(sorted(_words((*_TEXTS, tuple(SENSES.items()), _GRAMMAR))))
