"""`isotrain export RUN`: write transformers and sentence-transformers folders of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrain.console import FAILED, print_error, reject, say, spinner
from isotrain.export.formats import CannotExportError, RoundTripError, refusing
from isotrain.export.source_run import SourceRun, read_run
from isotrain.export.target import check_target, filling
from isotrain.runs.files import check_inside
from isotrain.runs.record import check_writable

if TYPE_CHECKING:  # torch takes seconds to import; early rejections do not need it
    from isotrain.export.card import Checked
    from isotrain.export.formats import Format
    from isotrain.export.rebuilt import Rebuilt


def export(folder: Path, to: Path | None, wanted: Sequence[str]) -> int:
    """Exit code: 0 if every requested folder was written and reproduces the run.

    2 if a run, target or format is rejected; nothing is written then. 1 if an export did not
    reproduce the run and was deleted, or storage failed.
    """
    if to is None:
        check_writable(folder)
        check_inside(folder, to := folder / "export")
    try:
        with spinner(f"looking at {folder}") as now:
            run = read_run(folder)
            for name in wanted:
                check_target(to / name)
            now("importing torch and transformers")
            from isotrain.export.rebuilt import rebuild

            now("making the model of the run")
            rebuilt = rebuild(run)
            formats, reasons = _formats(run, rebuilt, wanted)
            checked = _checked(run, rebuilt)
        if not formats:
            return reject(reasons)
        say(f"the weights and the record of the run: {checked.agreed}")
        kept = [_export(to / made.name, checked, made) for made in formats]
        for reason in reasons:
            say(f"not written: {reason}")
    except CannotExportError as error:
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
    from isotrain.export.folding import absorb_shift, check_layers
    from isotrain.export.rebuilt import merge_adapters
    from isotrain.export.sentence_folder import sentences_format
    from isotrain.export.transformers_folder import transformers_format

    formats, reasons = [], []
    with refusing(
        "layers and head of a run are tried on float64 embeddings alone and in parts, which "
        "failed; one of your own must take them"
    ):
        check_layers(rebuilt)
        merge_adapters(rebuilt.model)
        absorb_shift(rebuilt)
        for name in wanted:
            try:
                if name == "transformers":
                    formats.append(transformers_format(rebuilt))
                else:
                    formats.append(sentences_format(rebuilt, run.cfg.isotropy))
            except CannotExportError as error:
                reasons.append(str(error))
    return formats, reasons


def _checked(run: SourceRun, rebuilt: Rebuilt) -> Checked:
    """Read the run's records and compare predictions before anything is written."""
    from isotrain.export.agreement import agreement
    from isotrain.export.card import Checked, isotropy_table, scored

    with refusing(
        f"scores, log and predictions in {run.folder} must be as the run wrote them; put back what "
        "was changed, or give its command with rerun=true"
    ):
        found = scored(run, rebuilt.task.metrics().keys())
        return Checked(run, rebuilt, found, isotropy_table(run), agreement(run, rebuilt))


def _export(folder: Path, checked: Checked, made: Format) -> bool:
    """Write and verify a folder; whether it reproduces the run and was kept."""
    from transformers.utils import logging

    from isotrain.export.card import write_card

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    mark: dict[str, Any] = {"run": str(checked.run.folder), "format": made.name, "what": made.what}
    try:
        with spinner(f"writing {folder}") as now, filling(folder, mark) as part:
            made.write(part)
            now(f"comparing {folder} with the run")
            found = made.check(part)
            mark |= {"differences": found._asdict()}
            write_card(part, folder, checked, made, found)
    except RoundTripError as error:
        print_error(f"{folder} is not kept", [str(error)])
        return False
    say(f"{folder}: {made.what}; {len(checked.rebuilt.batch.index)} dev examples, {found}")
    return True
