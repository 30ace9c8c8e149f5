"""The folder of one run: what earlier tries left in it, and the record of this one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import Any

from omegaconf import DictConfig, OmegaConf

from isotrain.config.compose import plain, run_folder
from isotrain.console import print_changes, print_phases, print_start, say
from isotrain.pages.summary import print_summary
from isotrain.runs.files import read_result, read_rows, write_json
from isotrain.runs.keys import headline_of, metric_of, place_of
from isotrain.runs.record import CannotRunError, code_changes, environment, owned
from isotrain.runs.secrets import redacted
from isotrain.training.callbacks.best_checkpoint import lost_selection
from isotrain.training.callbacks.non_finite import NonFiniteError
from isotrain.training.callbacks.predictions import degenerate
from isotrain.training.callbacks.resume import load_resume_point
from isotrain.training.data import process_rank

OF_A_TRY = (
    *("result.json", "metrics.jsonl", "last.ckpt", "best.ckpt", "resume.ckpt"),
    *("fault.json", "wandb_id", "report.html"),
)
FOLDERS_OF_A_TRY = ("snapshots", "predictions", "figures")

EVALUATIONS = ("val/", "holdout/", "test/", "isotropy/")  # keys of scores


class RunFolder:
    """`<output_dir>/<task>/<arm>-<content hash>`, named, not made: `begin` writes first.

    Processes other than the first of a distributed run write nothing.

    Args:
        cfg: of the run; `threads` is a number.
        arm: first part of the name.
        revision: what the source holds of the data set now.
        overrides: of `isotrain train` that gave `cfg`, for the record.
        search: name of the one that it is a trial of, for the record; empty for any other run.
    """

    def __init__(
        self,
        cfg: DictConfig,
        arm: str,
        revision: str,
        overrides: Sequence[str] = (),
        search: str = "",
    ) -> None:
        self.cfg, self.arm, self.revision, self.overrides = cfg, arm, revision, list(overrides)
        self.search = search
        self.path, self.now = run_folder(cfg, arm), environment()
        self.is_first = process_rank() == 0
        self.record: dict[str, Any] = {}  # of this try, as `result.json` has it

    def owned(self) -> AbstractContextManager[None]:
        """Own the folder; a second process with the same run is refused.

        Raises:
            CannotRunError: another process is at this run.
        """
        return owned(self.path) if self.is_first else nullcontext()

    def stored(self) -> dict[str, float]:
        """The scores of a finished run, printed; empty if there is none or it shall run again.

        Raises:
            CannotRunError: the data have changed since.
        """
        result = read_result(self.path)
        if result.get("status") != "finished" or self.cfg.rerun:
            return {}
        if result["data"] != self.revision:
            raise CannotRunError(
                f"{self.path} was finished on {result['data']}, which is {self.revision} now; "
                "rerun=true trains on that and replaces the result"
            )
        note = "finished before; rerun=true trains again" + code_changes(result, self.now)
        if self.cfg.monitor.headline is not None:
            places = (place for key in result["scores"] if (place := place_of(key)))
            values = dict.fromkeys(place.metric for place in places)
            names = {
                metric: [v for v in values if metric_of(v, self.cfg.metric) == metric]
                for metric in self.cfg.metric
            }
            result["headline"] = headline_of(names, self.cfg.monitor.headline)
        if self.cfg.monitor.map_rows and not result["config"]["monitor"].get("map_rows"):
            note += "; it took no snapshots (monitor.map_rows=0), and rerun=true will"
        if self.cfg.checkpoint.final and not result["config"]["checkpoint"]["final"]:
            note += "; it kept no last.ckpt (checkpoint.final=false), and rerun=true will"
        if self.cfg.logger:
            note += f"; nothing was sent to {', '.join(self.cfg.logger)}"
        print_summary(result, self.rows(), self.path, note)
        return dict(result["scores"])

    def resume_point(self) -> dict[str, Any] | None:
        """Where an unfinished run stopped; None starts it anew.

        Raises:
            CannotRunError: the checkpoint cannot be opened, rows or weights it knows of are gone,
                or the data have changed since.
        """
        path, rows = self.path / "resume.ckpt", self.path / "metrics.jsonl"
        earlier = read_result(self.path)
        if earlier.get("status") == "finished":
            return None
        if path.is_file() and earlier.get("data") != self.revision:
            if self.cfg.rerun:
                return None
            raise CannotRunError(
                f"{self.path} was begun on {earlier.get('data')}, which is {self.revision} now; "
                "put the data back, or start anew with rerun=true"
            )
        try:
            point = load_resume_point(path)
        except OSError as error:
            raise CannotRunError(f"{path} cannot be opened: {error.strerror}; try again") from error
        except Exception as error:  # whatever a damaged file makes torch raise
            damaged = path.replace(path.with_suffix(".damaged"))
            say(f"{path} cannot be read and is kept as {damaged.name} ({error}); starting anew")
            return None
        n_bytes = rows.stat().st_size if rows.is_file() else 0
        if point is not None and n_bytes < point["n_bytes"]:
            raise CannotRunError(
                f"{rows} has {n_bytes} bytes and the checkpoint beside it knows of "
                f"{point['n_bytes']}: rows were deleted; put them back, or delete {path} to start "
                "anew"
            )
        best, select = self.path / "best.ckpt", self.cfg.training.select.value
        if point is not None and (lost := lost_selection(point["selection"], best, select)):
            raise CannotRunError(f"{lost}; put it back, or delete {path} to start anew")
        return point

    def begin(self, facts: dict[str, Any], point: dict[str, Any] | None) -> None:
        """Write the record as `running`, into a folder cleared of an earlier try.

        Args:
            facts: what the parts of the run say of themselves.
            point: where it goes on; None = from the start.
        """
        earlier = read_result(self.path)
        self.record = {
            "status": "running",
            "arm": self.arm,
            "seed": self.cfg.seed,
            "overrides": redacted(self.overrides),
            "search": self.search,
            "config": redacted(plain(self.cfg)),
            "data": self.revision,
            "environment": self.now,
            "earlier_environments": [] if point is None else _environments(earlier, self.now),
            "resumed_after_step": None if point is None else point["step"],
            **facts,
        }
        if not self.is_first:
            return
        for name in OF_A_TRY if point is None else ("fault.json",):
            (self.path / name).unlink(missing_ok=True)
        for name in FOLDERS_OF_A_TRY if point is None else ():
            shutil.rmtree(self.path / name, ignore_errors=True)
        OmegaConf.save(OmegaConf.create(self.record["config"]), self.path / "config.yaml")
        self._write()
        print_start(self.path, facts["n_parameters"], facts["n_rows"])
        print_phases(facts.get("phases", []), facts["n_parameters"])
        print_changes(facts.get("data_changes", {}))
        if point is not None:
            say(f"going on after step {point['step']}{code_changes(earlier, self.now)}")

    def finished(
        self, n_steps: int, timings_s: dict[str, float], selection: dict[str, Any]
    ) -> None:
        """Write the record with the scores; the run cannot be resumed any more.

        Args:
            n_steps: optimizer steps that were made.
            timings_s: seconds of its parts.
            selection: which weights the scores are of.
        """
        scores = _last_values(self.rows())
        reason = degenerate(scores, self.record["monitor"])
        self.record |= {"steps": n_steps, "scores": scores, "timings_s": timings_s, **selection}
        self.record |= {"degenerate": bool(reason), "degenerate_reason": reason}
        self.record["status"] = "finished"
        self.record["finished_at"] = datetime.now().astimezone().isoformat(timespec="seconds")
        if self.is_first:
            self._write()
            for name in ("resume.ckpt", "best.ckpt"):  # last.ckpt has the selected weights
                (self.path / name).unlink(missing_ok=True)

    def failed(self, error: BaseException) -> None:
        """Write down how a run ended before its end; a signal is an interruption."""
        stopped = isinstance(error, SystemExit | KeyboardInterrupt)
        self.record |= {
            "status": "interrupted" if stopped else "failed",
            "error": redacted(f"{type(error).__name__}: {error}"),
        }
        if not self.is_first:
            return
        if stopped:
            kept = (self.path / "resume.ckpt").is_file()
            say(f"{self.path}: stopped; the same command {'goes on' if kept else 'starts again'}")
        with suppress(OSError):  # a full disk has its own message
            self._write()
            if isinstance(error, NonFiniteError):
                write_json(self.path / "fault.json", error.report)

    def rows(self) -> list[dict[str, float]]:
        """What was logged so far."""
        return read_rows(self.path / "metrics.jsonl")

    def _write(self) -> None:
        write_json(self.path / "result.json", self.record)


def _environments(earlier: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the tries that a run goes on from, each where it differs from the one after it."""
    known = list(earlier.get("earlier_environments", []))
    last = earlier.get("environment")
    return known if last in (None, now) else [*known, last]


def _last_values(rows: list[dict[str, float]]) -> dict[str, float]:
    """The last logged value of every evaluation key."""
    values: dict[str, float] = {}
    for row in rows:
        values |= {k: v for k, v in row.items() if k.startswith(EVALUATIONS)}
    return values
