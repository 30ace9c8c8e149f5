"""Check that a node shares the launcher's folder and can lock files in it."""

from pathlib import Path

from isotrain.runs.locks import is_locked
from isotrain.runs.record import placement
from isotrain.studies.record import FILE as STUDY_FILE
from isotrain.studies.record import SEARCH_FILE


class NodeError(OSError):
    """A machine does not share the launcher's folder, or cannot lock files there."""


def marker_of(folder: Path) -> Path | None:
    """A file written by the launcher into the folder of its runs; None if there is none."""
    files = (folder / STUDY_FILE, folder / SEARCH_FILE)
    return next((file.absolute() for file in files if file.is_file()), None)


def check_shared(marker: Path) -> None:
    """Raise a NodeError if this machine does not see a file of the launcher, or cannot lock."""
    host, folder = placement()["host"], marker.parent
    if not marker.is_file():
        raise NodeError(
            f"{host} has no {marker}, which the launcher wrote: {folder} must be on a file system "
            "that all nodes share; give output_dir=... there"
        )
    try:
        is_locked(marker)
    except OSError as error:
        raise NodeError(
            f"{host} cannot lock files in {folder} ({error.strerror}), by which two processes "
            "never train one run: mount it with flock, or give another output_dir=..."
        ) from error
