"""Folder of one run: state of earlier attempts, and the record of this one."""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from isotrain.config.compose import method_of, recorded, run_folder
from isotrain.runs.files import (
    WEIGHTS_FILE,
    ChangedError,
    DamagedError,
    read_records,
    read_result,
    replace_text,
    write_json,
    write_result,
)
from isotrain.runs.locks import is_locked, launch_id, owner
from isotrain.runs.record import JOB, POLL_S, code_changes, environment, owned, placement
from isotrain.runs.secrets import redacted

OF_A_TRY = (  # in the order in which they are deleted: what a kill leaves is no damaged run
    *("result.json", "resume.ckpt", "resume.json", "metrics.jsonl", "best.ckpt"),
    *(WEIGHTS_FILE, "fault.json", "wandb_id", "report.html"),
)
ALONE_S = 30.0  # longest difference between ranks that prepare a run
FOLDERS_OF_A_TRY = ("snapshots", "predictions", "figures")

EVALUATIONS = ("val/", "holdout/", "test/", "isotropy/")  # keys of scores


class RunFolder:
    """`<output_dir>/<task>/<method>-<hash>`: named here, created by `begin`.

    Arguments are those of `isotrain.runner.run`. `revision` is that of the data; `is_first` is
    rank 0, the only one that writes.
    """

    def __init__(
        self,
        cfg: DictConfig,
        revision: str,
        overrides: Sequence[str] = (),
        is_first: bool = True,
    ) -> None:
        self.cfg, self.revision, self.overrides = cfg, revision, list(overrides)
        self.is_first = is_first
        self.path, self.now = run_folder(cfg, revision), environment(cfg.threads)
        self.record: dict[str, Any] = {}  # of this attempt, as `result.json` has it
        self.note = ""  # of a run that was finished before: what a reader should know

    def owned(self) -> AbstractContextManager[None]:
        """Own the folder, after waiting for another process that runs it.

        Ranks above 0 wait for their own rank 0 to own it, or for the run to be finished: else they
        would wait in a collective, which times out. If nobody owns it for `ALONE_S`, they go on:
        the first collective tells whether rank 0 has another run.
        """
        if self.is_first:
            return owned(self.path)
        lock, alone_at = self.path / ".lock", time.monotonic()
        while (launch := launch_id()) and not self.is_finished():
            if is_locked(lock):
                alone_at = time.monotonic()
                if (holder := owner(lock)) and holder.launch == launch:
                    break
            elif time.monotonic() > alone_at + ALONE_S:
                break
            time.sleep(POLL_S)
        return nullcontext()

    def is_finished(self) -> bool:
        """Whether the run has finished and `rerun` is off; sets `record` and `note`.

        Raises:
            ChangedError: it has, and a file of it was changed since.
        """
        if self.cfg.rerun:
            return False
        result = _earlier(self.path)
        if result.get("status") != "finished":
            return False
        self.record = result
        self.note = "finished before; rerun=true trains again" + code_changes(result, self.now)
        return True

    def may_resume(self) -> bool:
        """Whether it resumes an earlier attempt."""
        return may_resume(self.path, self.cfg.rerun)

    def check_records(self, n_bytes: int, sha256: str) -> None:
        """Raise a DamagedError unless `metrics.jsonl` begins as it was when a checkpoint was made.

        Later records may come from a run that was killed afterwards.
        """
        file = self.path / "metrics.jsonl"
        content = file.read_bytes()[:n_bytes] if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DamagedError(file, f"its first {n_bytes} bytes are not what was written")

    def begin(self, facts: dict[str, Any], resumed_after: int | None) -> str:
        """Write the record, with `facts` of the parts, as `running`; delete an earlier attempt.

        Returns a note if the run resumes after a step that other code made; else empty.
        """
        earlier = {} if resumed_after is None else _earlier(self.path)
        self.record = {
            "status": "running",
            "method": method_of(self.cfg),
            "seed": self.cfg.seed,
            "overrides": redacted(self.overrides),
            "study": self.cfg.study or "",
            "search": self.cfg.search or "",
            "config": recorded(self.cfg),
            "data": self.revision,
            "environment": self.now,
            "place": placement(),
            "earlier_environments": _environments(earlier, self.now),
            "resumed_after_step": resumed_after,
            **facts,
        }
        if self.is_first:
            for name in OF_A_TRY if resumed_after is None else ("fault.json",):
                (self.path / name).unlink(missing_ok=True)
            for name in FOLDERS_OF_A_TRY if resumed_after is None else ():
                if (folder := self.path / name).is_symlink():
                    folder.unlink()
                shutil.rmtree(folder, ignore_errors=True)
            text = OmegaConf.to_yaml(OmegaConf.create(self.record["config"]))
            replace_text(self.path / "config.yaml", text)
            write_result(self.path, self.record)
        return code_changes(earlier, self.now) if earlier else ""

    def finished(self, facts: dict[str, Any]) -> None:
        """Write the record, with `facts` such as scores and timings, as `finished`."""
        self.record |= facts
        self.record["status"] = "finished"
        self.record["finished_at"] = datetime.now().astimezone().isoformat(timespec="seconds")
        if self.is_first:
            write_result(self.path, self.record)
            for name in ("resume.ckpt", "resume.json", "best.ckpt"):
                (self.path / name).unlink(missing_ok=True)

    def failed(self, error: BaseException, report: dict[str, Any] | None = None) -> None:
        """Write the record as `failed`, or `interrupted` by a signal; `report` to `fault.json`."""
        reason = f"{type(error).__name__}: {error}"
        code = error.code if isinstance(error, SystemExit) else None
        is_stopped = isinstance(code, int) and code >= 128
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt)
        ):  # as Lightning exits
            reason = "KeyboardInterrupt: stopped by the second Ctrl-C, or by one before training"
            is_stopped = True
        status = "interrupted" if is_stopped else "failed"
        self.record |= {"status": status, "error": redacted(reason)}
        if not self.is_first:
            return
        with suppress(OSError):  # a full disk has its own message
            write_result(self.path, self.record)
            if report is not None:
                write_json(self.path / "fault.json", report)

    def records(self) -> list[dict[str, float]]:
        """The records logged so far."""
        return read_records(self.path / "metrics.jsonl")

    def scores(self) -> dict[str, float]:
        """The values of the last evaluation of each split, without those that were undefined."""
        values: dict[str, float] = {}
        records = self.records()
        for prefix in EVALUATIONS:
            evaluations = [r for r in records if any(key.startswith(prefix) for key in r)]
            for record in evaluations:
                if record["step"] == evaluations[-1]["step"]:
                    values |= {key: x for key, x in record.items() if key.startswith(prefix)}
        return values


def may_resume(folder: Path, rerun: bool) -> bool:
    """Whether an attempt there stopped early; `rerun=true` starts anew, but not a retry."""
    earlier = _earlier(folder)
    is_over = (rerun and not _is_retry(earlier)) or earlier.get("status") == "finished"
    return not is_over and (folder / "resume.ckpt").exists()


def _is_retry(earlier: dict[str, Any]) -> bool:
    """Whether this is a job that Slurm requeued, or the task of `earlier` that Ray retries."""
    is_task = JOB in os.environ and os.environ[JOB] == (earlier.get("place") or {}).get("job")
    return is_task or int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0


def _earlier(folder: Path) -> dict[str, Any]:
    """The record of an earlier attempt; empty where there is none, or a damaged one."""
    try:
        return read_result(folder)
    except ChangedError:
        raise
    except DamagedError:
        return {}


def _environments(earlier: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    """Environments of the resumed attempts, each if it differs from the next."""
    environments = list(earlier.get("earlier_environments", []))
    last = earlier.get("environment")
    return environments if last in (None, now) else [*environments, last]
