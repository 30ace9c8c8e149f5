"""Report and status of a search: `table.md`, `trials.csv`, a study to confirm the best trial."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pandas import DataFrame

from isotrain.config.compose import key_of
from isotrain.console import counted, duration, say
from isotrain.results.markdown import rendered
from isotrain.results.run_frames import csv_text
from isotrain.runs.files import replace_files
from isotrain.runs.numbers import number, score_number
from isotrain.studies.confirm import (
    PLACES,
    Confirmation,
    best_trial,
    confirmation,
    is_complete,
)
from isotrain.studies.search import Record, trials_of
from isotrain.studies.status import Status
from isotrain.studies.trials import BAD_ENDINGS, SCORES, WHY, ending, is_left

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

STATES = ("complete", "pruned", *BAD_ENDINGS, "failed", "running", "waiting")


def status_of_search(folder: Path, storage: str | None = None) -> Status:
    """Trials by state, reasons of failed ones, and the time left; see `trials_of`."""
    record, trials = trials_of(folder, storage)
    states = [_state(trial, folder) for trial in trials]
    states += ["waiting"] * (record.search.n_trials - len(trials))
    counts = {state: states.count(state) for state in STATES}
    parts = [f"{n} {state}" for state, n in counts.items() if n or state == "complete"]
    line = f"search {record.search.name}: {counted(len(states), 'trial')}, {', '.join(parts)}"
    n_left, left_s = counts["running"] + counts["waiting"], None
    seconds = [t.duration.total_seconds() for t in trials if t.state.is_finished() and t.duration]
    if n_left:
        left_s = median(seconds) * n_left / max(1, counts["running"]) if seconds else None
        line += f"; about {duration(left_s)} left" if left_s is not None else "; time left unknown"
        line += "" if counts["running"] else "; none is running: the same command goes on"
    failures = [t for t in trials if ending(t) == "failed"]
    reasons = [f"trial {t.number}: {t.user_attrs.get(WHY)}" for t in failures]
    return Status([*reasons, line], bool(failures))


def write_report(folder: Path, storage: str | None = None) -> list[Path]:
    """Write and print the tables of a search so far; return the files.

    Equal trials give equal files. The study that confirms the best trial is written once all
    `n_trials` have ended, and only if it can run. Without a trial that has ended there are no
    files. See `trials_of`.
    """
    record, trials = trials_of(folder, storage)
    if not any(trial.state.is_finished() for trial in trials):
        say(f"{folder}: no trial of search {record.search.name} has ended")
        return []
    study = confirmation(record, trials)
    texts = {study.file: study.yaml} if isinstance(study, Confirmation) else {}
    texts |= {"table.md": _markdown(record, trials, study), "trials.csv": _csv(record, trials)}
    written = replace_files(folder, {name: text.encode() for name, text in texts.items()})
    say(texts["table.md"])
    say(f"{folder}: {', '.join(texts)}")
    return written


def _state(trial: FrozenTrial, folder: Path) -> str:
    return "waiting" if is_left(trial, folder) else ending(trial)


def _markdown(record: Record, trials: Sequence[FrozenTrial], study: Confirmation | str) -> str:
    search, states = record.search, Counter(_state(trial, record.folder) for trial in trials)
    command = ""
    if isinstance(study, Confirmation):
        arguments = [text for text in record.overrides if key_of(text) in PLACES]
        arguments += ["--config-dir", record.config_dir] if record.config_dir else []
        command = shlex.join(["isotrain", "run", str(record.folder / study.file), *arguments])
    return rendered(
        "search.md.j2",
        search=search,
        n_trials=len(trials),
        states={name: states[name] for name in STATES if states[name]},
        overrides={key_of(text): text for text in (*search.overrides, *record.overrides)}.values(),
        objective=record.objective,
        is_max=record.direction == "max",
        table=_table(record, trials),
        best=best_trial(trials, record.direction),
        n_complete=sum(map(is_complete, trials)),
        study=study,
        command=command,
    )


def _table(record: Record, trials: Sequence[FrozenTrial]) -> list[tuple[str, ...]]:
    """The complete trials from the best down, then the others by number."""
    sign = -1 if record.direction == "max" else 1
    keys = [p.key for p in record.search.parameters]
    lines: list[tuple[str, ...]] = [("trial", record.objective, "state", *keys, "why")]
    for t in sorted(
        trials, key=lambda t: (0, sign * t.values[0]) if is_complete(t) else (1, t.number)
    ):
        values = (t.params.get(key, "") for key in keys)
        texts = (number(value) if isinstance(value, float) else str(value) for value in values)
        score = score_number(t.values[0], record.objective) if is_complete(t) else ""
        lines.append(
            (str(t.number), score, _state(t, record.folder), *texts, str(t.user_attrs.get(WHY, "")))
        )
    return lines


def _csv(record: Record, trials: Sequence[FrozenTrial]) -> str:
    scores = [record.objective, *(f"seed_{k}" for k in record.search.seeds)]
    lines = []
    for trial in trials:
        seed_scores = [x for x in trial.user_attrs.get(SCORES) or () if isinstance(x, float)]
        values = [trial.value if is_complete(trial) else None, *seed_scores]
        line = {
            "trial": trial.number,
            "state": _state(trial, record.folder),
            "why": trial.user_attrs.get(WHY),
        }
        lines.append(line | trial.params | dict(zip(scores, values, strict=False)))
    columns = ["trial", "state", *scores, *(p.key for p in record.search.parameters), "why"]
    frame = DataFrame(lines, columns=columns, dtype=object)
    return csv_text(frame.astype(dict.fromkeys(scores, "float64")))
