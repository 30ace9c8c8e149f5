"""`isotrain export RUN`: write transformers and sentence-transformers folders of a run."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isotrain.console import FAILED, print_error, reject, say, spinner
from isotrain.export.source_run import RoundTripError, SourceRun, read_run
from isotrain.runs.record import check_writable

if TYPE_CHECKING:  # torch takes seconds to import; early rejections do not need it
    from isotrain.export.card import Checked
    from isotrain.export.folders import Format
    from isotrain.export.rebuilt import Rebuilt


def export(folder: Path, to: Path | None, wanted: Sequence[str]) -> int:
    """Exit code: 0 if every requested folder was written and reproduces the run.

    2 if a run, target or format is rejected; nothing is written then. 1 if an export did not
    reproduce the run and was deleted, or storage failed.
    """
    if to is None:
        check_writable(folder)
        to = folder / "export"
    try:
        with spinner(f"looking at {folder}") as now:
            run = read_run(folder)
            for name in wanted:
                if (to / name).exists():
                    raise ValueError(f"{to / name} exists; delete it, or give another --to")
            now("importing torch and transformers")
            from isotrain.export.card import Checked, isotropy_table, scored
            from isotrain.export.rebuilt import agreement, rebuild

            now("making the model of the run")
            rebuilt = rebuild(run)
            formats, reasons = _formats(run, rebuilt, wanted)
            scores = scored(run, rebuilt.task.metrics().keys())
            agreed = agreement(run, rebuilt)
            checked = Checked(run, rebuilt, scores, isotropy_table(run), agreed)
        if not formats:
            return reject(reasons)
        say(f"the weights and the record of the run: {agreed}")
        kept = [_export(to / made.name, checked, made) for made in formats]
        for reason in reasons:
            say(f"not written: {reason}")
    except ValueError as error:
        return reject(str(error))
    except OSError as error:
        print_error(
            "the export stopped, and nothing of it is kept", [f"{error}; give another --to"]
        )
        return FAILED
    return 0 if all(kept) else FAILED


def _formats(
    run: SourceRun, rebuilt: Rebuilt, wanted: Sequence[str]
) -> tuple[list[Format], list[str]]:
    """The requested formats that can be written, and why the others cannot."""
    from isotrain.export.folders import sentences_format, transformers_format
    from isotrain.export.folding import check_layers
    from isotrain.export.rebuilt import merge_adapters

    formats, reasons = [], []
    check_layers(rebuilt)
    merge_adapters(rebuilt.model)
    for name in wanted:
        try:
            if name == "transformers":
                formats.append(transformers_format(rebuilt))
            else:
                formats.append(sentences_format(rebuilt, run.cfg.isotropy))
        except ValueError as error:
            reasons.append(str(error))
    return formats, reasons


def _export(folder: Path, checked: Checked, made: Format) -> bool:
    """Write and verify a folder; whether it reproduces the run and was kept."""
    from transformers.utils import logging

    from isotrain.export.card import write_card

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with spinner(f"writing {folder}") as now, filling(folder) as part:
            made.write(part)
            now(f"comparing {folder} with the run")
            found = made.check(part)
            write_card(part, folder, checked, made, found)
    except RoundTripError as error:
        print_error(f"{folder} is not kept", [str(error)])
        return False
    say(f"{folder}: {made.what}; {len(checked.rebuilt.batch.index)} dev examples, {found}")
    return True


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A temporary sibling of `folder`, moved there at the end; deleted if the block fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        yield part
        part.rename(folder)  # fails where files came into its place meanwhile
    finally:
        shutil.rmtree(part, ignore_errors=True)
