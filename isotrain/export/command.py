"""`isotrain export RUN`: write transformers and sentence-transformers folders of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from isotrain.console import FAILED, install, print_error, reject, say, spinner

if TYPE_CHECKING:  # torch takes seconds to import; early rejections do not need it
    from isotrain.export.folders import Folder
    from isotrain.export.rebuilt import Rebuilt


def export(folder: Path, to: Path | None, format_names: Sequence[str]) -> int:
    """Exit code: 0 if every requested folder was written and reproduces the run.

    2 if a run, target or format is rejected; then nothing is written. 1 if storage failed, or if an
    export did not reproduce the run and was deleted.
    """
    to = to or folder / "export"
    if existing := [to / name for name in format_names if (to / name).exists()]:
        return reject(f"{existing[0]} exists; delete it, or give another --to")
    formats, reasons = [], []
    try:
        with spinner("making the model of the run"):
            from isotrain.export.folding import check_layers
            from isotrain.export.rebuilt import agreement, merge_adapters, rebuild

            rebuilt = rebuild(folder)
            agreement_text = agreement(rebuilt)
            check_layers(rebuilt)
            merge_adapters(rebuilt.model)
            for name in format_names:
                try:
                    formats.append(_format(name, rebuilt))
                except ValueError as error:
                    reasons.append(str(error))
        if not formats:
            return reject(reasons)
        say(f"the weights and the record of the run: {agreement_text}")
        successes = [_write(to / fmt.name, fmt, agreement_text) for fmt in formats]
    except ValueError as error:
        return reject(str(error))
    except OSError as error:
        print_error(
            "the export stopped, and nothing of it is kept", [f"{error}; give another --to"]
        )
        return FAILED
    for reason in reasons:
        say(f"not written: {reason}")
    return 0 if all(successes) else FAILED


def _format(name: str, rebuilt: Rebuilt) -> Folder:
    """The folder of a format; a ValueError if it cannot hold this run."""
    from isotrain.export.folders import POOLED, TransformersFolder

    if name == "transformers":
        return TransformersFolder(rebuilt)
    if len(rebuilt.texts[0]) > 1:
        raise ValueError(
            "format=sentence-transformers has a vector for each sentence, and form=cross reads two "
            "as one sequence; train with task.form=bi"
        )
    if (pooling := type(rebuilt.model.pooling)) not in POOLED:
        raise ValueError(
            "format=sentence-transformers has the poolings cls, mean and last, and this run has "
            f"{pooling.__name__}; train with one of these"
        )
    try:
        from isotrain.export.sentences import SentencesFolder
    except ImportError as error:
        raise ValueError(
            f"format=sentence-transformers: {error}; {install('export')}, or give --format "
            "transformers"
        ) from error
    return SentencesFolder(rebuilt)


def _write(folder: Path, fmt: Folder, agreement_text: str) -> bool:
    """Write and verify a folder; whether it reproduces the run."""
    from transformers.utils import logging

    from isotrain.export.card import card
    from isotrain.export.folders import RoundTripError

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            spinner(f"writing {folder}") as update,
            TemporaryDirectory(dir=folder.parent, prefix=".") as temp_folder,
        ):
            part = Path(temp_folder) / folder.name
            fmt.write(part)
            update(f"comparing {folder} with the run")
            differences = fmt.check(part)
            card(folder, fmt, agreement_text, differences).save(part / "README.md")
            part.rename(folder)  # fails where files came into its place meanwhile
    except RoundTripError as error:
        print_error(f"{folder} is not kept", [str(error)])
        return False
    say(f"{folder}: {fmt.summary}; {len(fmt.rebuilt.batch.index)} dev examples, {differences}")
    return True
