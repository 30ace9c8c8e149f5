"""Which of a run's W&B folders `wandb sync` sends, so that each row reaches the service once.

Each opening of a run writes a folder. An offline one has all records that the service lacks, hence
those of the older offline folders too; `wandb sync` of two of them would append the rows twice. It
skips a folder with `run-ID.wandb.synced`, so an older folder gets that mark.
"""

import json
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from isotrain.runs.files import replace_text


def earlier_records(save_dir: Path, run_id: str) -> list[Path]:
    """The record files of all openings of a run, under its id and those it had before."""
    first = _first_id(run_id)
    found = save_dir.glob(f"wandb/*run-*-{escape(first)}*/run-*.wandb")
    return sorted(path for path in found if _first_id(path.stem.removeprefix("run-")) == first)


def continued(records: Sequence[Path], run_id: str) -> tuple[str, int]:
    """The id of the next offline opening, and the number of rows that the service has of it.

    Where part of a run was sent and how much is not known here (it was online, killed, or synced
    while it ran), the next opening is a W&B run of its own: it has all rows, and none twice.
    """
    n_held = 0
    for record in records:
        if record.name != f"run-{run_id}.wandb" or not (state := _beside(record, "syncstate")):
            continue  # W&B writes the state when it begins to send a record
        rows = _beside(record, "rows")
        if not rows or not _is_marked(record):
            number = run_id.removeprefix(_first_id(run_id)).removeprefix("-")
            return f"{_first_id(run_id)}-{int(number or 1) + 1}", 0
        n_held = max(n_held, json.loads(state)["starting_step"] + int(rows))
    return run_id, n_held


def supersede(records: Sequence[Path], record: Path, whole: bool) -> list[Path]:
    """Mark offline records that `record` replaces as synced; those still to be marked.

    Until it is `whole`, it replaces those that are not larger than what of it is on disk: if the
    process is killed earlier, they hold more.
    """
    size, remaining = record.stat().st_size if record.is_file() else 0, []
    for older in records:
        same = older.parent.name == record.parent.name  # opened again within a second
        if same or not older.parent.name.startswith("offline-") or _is_marked(older):
            continue
        if whole or older.stat().st_size <= size:
            replace_text(older.with_suffix(".wandb.synced"), f"replaced by {record.parent.name}\n")
        else:
            remaining.append(older)
    return remaining


def keep_row_count(record: Path, n_rows: int) -> None:
    """Write the number of rows of a closed offline record beside it, for `continued`."""
    replace_text(record.with_suffix(".wandb.rows"), str(n_rows))


def _is_marked(record: Path) -> bool:
    return record.with_suffix(".wandb.synced").exists()


def _first_id(run_id: str) -> str:
    return run_id.partition("-")[0]


def _beside(record: Path, suffix: str) -> str | None:
    path = record.with_suffix(f".wandb.{suffix}")
    return path.read_text("utf-8") if path.is_file() else None
