"""How the definition of a study has changed since its first run started, in words.

A history is a list of definitions, the present one last. Each has the number of runs on record when
it came, and of those that had finished by then: a choice made after results were there shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from isotrain.studies.definition import Study

KINDS = ("tasks", "arms", "seeds")
Definition = dict[str, Any]  # what `definition` and `entry` give


def definition(study: Study) -> Definition:
    """What a history keeps of a study: margin, baseline, and the names of its parts."""
    names = {kind: list(getattr(study, kind)) for kind in KINDS}
    share = study.margin_share
    margin = study.margin if share is None else f"{share:g} of baseline − untrained"
    return {"margin": margin, "baseline": study.baseline, **names}


def entry(study: Study, n_runs: int, n_finished: int) -> Definition:
    """The definition with the runs on record before it: how many, and how many had finished."""
    return {**definition(study), "n_runs": n_runs, "n_finished": n_finished}


def is_of(known: Definition, study: Study) -> bool:
    """Whether an entry has the definition of a study; the order of its parts is none of it.

    >>> one = Study("one", (), {"rte": ()}, {"none": (), "mean": ()}, "none", (0, 1))
    >>> is_of(entry(one, 4, 0), one), is_of(entry(one, 4, 0), one.__class__(
    ...     "one", (), {"rte": ()}, {"none": (), "mean": ()}, "none", (0, 1), margin=0.01))
    (True, False)
    """
    now = definition(study)
    same = all(set(known[kind]) == set(now[kind]) for kind in KINDS)
    return same and all(known[key] == now[key] for key in ("margin", "baseline"))


def in_words(history: Sequence[Definition], has_finished: Callable[[str, Any], bool]) -> list[str]:
    """A line for each change of a history that its present definition does not show.

    `has_finished` says of a kind (`tasks`, `arms` or `seeds`) and a name of that kind whether a
    run of it is on record that finished.

    >>> def known(**own):
    ...     of_all = {"margin": None, "baseline": "none", "tasks": ["rte"], "arms": ["none"]}
    ...     return {**of_all, "seeds": [0, 1, 2], "n_runs": 3, "n_finished": 0, **own}
    >>> in_words([known(), known(seeds=[0, 1, 2, 3], n_finished=3)], lambda kind, name: True)
    ['seeds 3 were added to 0-2 when 3 of 3 runs had finished']
    >>> in_words([known(margin=0.005), known(margin=0.01)], lambda kind, name: True)
    ['margin was 0.005 when the first run started, and became 0.01 when 0 of 3 runs had finished']
    """
    first, now = history[0], history[-1]
    lines, start = [], "when the first run started"
    if first["n_finished"]:
        start = "at the first call on record"
        lines.append(f"{_when(first)} before the first call on record")
    margins = [(one, other) for one, other in pairwise(history) if one["margin"] != other["margin"]]
    if margins:
        became = (f"became {_margin(new)} when {_when(new)}" for _, new in margins)
        lines.append(f"margin was {_margin(first)} {start}, and {', then '.join(became)}")
    for kind in KINDS:
        seen = list(first[kind])
        for new in history[1:]:
            if added := [name for name in new[kind] if name not in seen]:
                if stay := [name for name in added if name in now[kind]]:
                    text = f"{kind} {listed(stay)} were added to {listed(seen)}"
                    lines.append(f"{text} when {_when(new)}")
                seen += added
        out = [name for name in seen if name not in now[kind]]
        finished = [name for name in out if has_finished(kind, name)]
        unfinished = [name for name in out if name not in finished]
        if finished:
            lines.append(f"{kind} finished earlier and left out now: {listed(finished)}")
        if unfinished:
            lines.append(f"{kind} planned earlier, never finished, left out: {listed(unfinished)}")
    return lines


def listed(names: Iterable[Any]) -> str:
    """Names in their order; three and more numbers in a row as a range.

    >>> listed(["none", "mean"]), listed([0, 1, 2, 5, 7, 8])
    ('none, mean', '0-2, 5, 7, 8')
    """
    parts: list[str] = []
    for _, group in groupby(enumerate(names), _run_of_numbers):
        own = [str(name) for _, name in group]
        parts += [f"{own[0]}-{own[-1]}"] if len(own) > 2 else own
    return ", ".join(parts)


def _run_of_numbers(numbered: tuple[int, Any]) -> Any:
    """The same for numbers that follow one another, another one for each name."""
    place, name = numbered
    return name - place if isinstance(name, int) else (place, name)


def _when(known: Definition) -> str:
    return f"{known['n_finished']} of {known['n_runs']} runs had finished"


def _margin(known: Definition) -> str:
    margin = known["margin"]
    return "not stated" if margin is None else margin if isinstance(margin, str) else f"{margin:g}"
