"""Papers behind the parts: every part has one or is ours, every entry is whole and used."""

import re
from importlib.metadata import version
from importlib.resources import files

import pytest
import yaml

from isotrain.resources.references import bibtex, papers
from tests.parts import CONF, names

OURS = {  # no paper but this project
    *("spectral", "partition_null", "spectral_entropy", "condition", "explained_variance"),
    *("removed_label_scatter", "cosine_drift", "identity", "anchor", "spectral_temper"),
}
TEXT = (files("isotrain.resources") / "references.bib").read_text(encoding="utf-8")
ENTRIES = {text.partition(",")[0]: "@" + text.strip() for text in TEXT.split("@")[1:]}


def modules(group):
    """The modules that the files of a group take their parts from."""
    text = "".join((CONF / group / f"{name}.yaml").read_text() for name in names(group))
    return set(re.findall(r"_target_: isotrain\.\w+\.(\w+)\.\w+", text))


@pytest.mark.parametrize(("group", "least"), [("isotropy", 10), ("objective", 15), ("metric", 30)])
def test_parts_have_papers_or_are_ours(group, least):
    """A new part edits no existing file, so that it may be in neither list."""
    known = modules(group) & (set(papers()) | OURS)
    assert len(known) >= least
    assert not set(papers()) & OURS


def test_every_entry_is_that_of_some_parts_and_no_part_has_two():
    keywords = re.findall(r"^  keywords = \{(.*)\},$", TEXT, re.MULTILINE)
    assert len(keywords) == len(ENTRIES) > 50
    parts = [part for line in keywords for part in line.split(", ")]
    assert sorted(parts) == sorted(papers())
    assert not any("keywords" in entry for entry in papers().values())


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_an_entry_is_whole(entry):
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    assert {"author", "title", "year"} <= set(fields)
    assert {"booktitle", "journal", "note"} & set(fields)
    assert fields["year"] == "n.d." or 1930 < int(fields["year"]) < 2030
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
