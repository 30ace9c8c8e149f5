"""BibTeX of the papers behind encoders, adapters, isotropy layers, objectives, metrics, data.

Each entry of `references.bib` names its parts as `keywords`. A keyword is the `conf` file of a
part, or its module or function (for records without names). It can also be the `model_type` of an
encoder, or the name of an adapter, data set or analysis. Two are special: `gmm_clusters` belongs to
`gmm_pca`, and `tuned_clusters` to `cluster_pca` in a run that fine-tunes.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

KEYWORDS = re.compile(r"^  keywords = \{(.*)\},\n", re.MULTILINE)
KEYS = ("author", "year")


@cache
def papers() -> dict[str, str]:
    """The entry of each part that has a paper, without its keywords.

    >>> papers()["istar"].splitlines()[0]
    '@inproceedings{rudman2024stable,'
    """
    text = (files("isotrain.resources") / "references.bib").read_text(encoding="utf-8")
    entries: dict[str, str] = {}
    for entry in re.findall(r"^@\w+\{.*?^\}", text, re.DOTALL | re.MULTILINE):
        for keywords in KEYWORDS.findall(entry):
            entries |= dict.fromkeys(keywords.split(", "), KEYWORDS.sub("", entry))
    return entries


def bibtex(parts: Iterable[str]) -> list[str]:
    """The entries of parts, without duplicates; a part without a paper has none.

    >>> len(bibtex(["istar", "isoscore_star", "spectral"]))
    1
    """
    return list(dict.fromkeys(papers()[part] for part in parts if part in papers()))


def citation(part: str) -> str:
    """Authors and year of the paper of a part; empty without one.

    >>> citation("cluster_pca"), citation("isoscore"), citation("mine")
    ('Rajaee & Pilehvar 2021', 'Rudman et al. 2022', '')
    """
    entry = papers().get(part, "")
    if not entry:
        return ""
    authors, year = (re.search(rf"^  {key} = \{{(.*)\}},$", entry, re.MULTILINE) for key in KEYS)
    assert authors
    assert year
    names = [name.partition(",")[0] for name in authors[1].split(" and ")]
    who = " & ".join(names) if len(names) < 3 and "others" not in names else f"{names[0]} et al."
    return f"{who} {year[1]}"
