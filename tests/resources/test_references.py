"""Papers behind the parts: every part has one or is ours, every entry is whole and used."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest
import yaml

from isotrain.resources.references import KEYS, OURS, bibtex, entries
from tests.parts import CONF, names


def modules(group):
    """The modules that the files of a group take their parts from."""
    text = "".join((CONF / group / f"{name}.yaml").read_text() for name in names(group))
    return set(re.findall(r"_target_: isotrain\.\w+\.(\w+)\.\w+", text))


@pytest.mark.parametrize(("group", "least"), [("isotropy", 10), ("objective", 15), ("metric", 30)])
def test_parts_have_papers_or_are_ours(group, least):
    """A new part edits no existing file, so that it may be in neither list."""
    known = modules(group) & (set(KEYS) | OURS)
    assert len(known) >= least
    assert not set(KEYS) & OURS


def test_every_key_has_an_entry_and_every_entry_is_used():
    assert set(KEYS.values()) == set(entries())


@pytest.mark.parametrize("entry", entries().values(), ids=list(entries()))
def test_an_entry_is_whole(entry):
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    assert {"author", "title", "year"} <= set(fields)
    assert {"booktitle", "journal"} & set(fields)
    assert 1930 < int(fields["year"]) < 2030
    assert entry.count("{") == entry.count("}")
    assert entry.count(" = ") == len(fields)


def test_papers_of_several_parts_come_once_and_in_order():
    found = bibtex(["istar", "isoscore_star", "spectral", "partition"])
    assert [re.search(r"\{(\w+),", entry)[1] for entry in found] == [
        "rudman2024stable",
        "mu2018allbutthetop",
    ]


def test_the_citation_of_the_project_is_of_this_version():
    content = yaml.safe_load((CONF.parent / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= set(content)
    assert content["version"] == version("isotrain")
