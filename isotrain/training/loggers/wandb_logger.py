"""Weights & Biases logger: online with a key, offline without; it never blocks a run."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field
from pytorch_lightning.loggers import WandbLogger

from isotrain.arguments import checked
from isotrain.config.environment import has_wandb_key
from isotrain.console import say
from isotrain.runs.files import replace_text
from isotrain.runs.secrets import redacted

STEP = "trainer/global_step"  # the x-axis of all curves


class WandbRun(WandbLogger):
    """Lightning's logger for an open run, which can also publish and close a finished one.

    Args:
        run: the result of `wandb.init`.
        timeout_s: seconds that the end of the run waits for uploads; for the message.
    """

    def __init__(self, run: Any, timeout_s: float) -> None:
        super().__init__(experiment=run)
        self.timeout_s = timeout_s

    def publish(
        self, summary: Mapping[str, float], media: Iterable[tuple[int, Mapping[str, Any]]]
    ) -> None:
        """Log summary and media of a finished run.

        Args:
            summary: values of the run's summary.
            media: (step, {key: W&B object}), logged in this order.
        """
        self.experiment.summary.update(summary)
        for step, objects in media:
            if objects:
                self.experiment.log({**objects, STEP: step})

    def close(self, failed: bool) -> None:
        """End the run with exit code 0, or 1 if it failed.

        Waits up to `timeout_s` for uploads; unsent data stays on disk, and the upload command is
        printed, as for an offline run.
        """
        run = self.experiment
        flag = "" if run.offline else "--include-online "  # `wandb sync` skips it otherwise
        command = f"wandb sync {flag}{Path(run.dir).parent}"
        try:
            run.finish(exit_code=int(failed))
        except TimeoutError:
            say(f"W&B: not all was sent within {self.timeout_s:g} s; send the rest with: {command}")
            return
        if run.offline and not run.disabled:
            say(f"W&B: logged offline; send it with: {command}")


@checked
def build_wandb_logger(
    project: str,
    group: str | None,
    save_dir: str | Path,
    name: str,
    job_type: str | None = None,
    tags: list[str] | None = None,
    timeout_s: Annotated[float, Field(gt=0)] = 30.0,
) -> WandbRun:
    """A logger whose run is online when a key is configured and offline otherwise.

    `WANDB_MODE` overrides that. If the service is unreachable or rejects the run, it continues
    offline. Machine metadata, command line, code and terminal output are not sent, as they may
    contain secrets.

    The run's id is kept in `<save_dir>/wandb_id`, so that a resumed run continues its curves;
    offline in a new folder, which has the records from there on.

    Args:
        project: of W&B.
        group: groups runs in W&B.
        save_dir: folder of the run.
        name: shown in W&B.
        job_type: what kind of run it is, such as a method; None = train.
        tags: search tags.
        timeout_s: seconds to wait for the service at the start, and for the last uploads.
    """
    import wandb  # takes its time

    id_file = Path(save_dir) / "wandb_id"
    run_id = id_file.read_text("utf-8") if id_file.is_file() else uuid4().hex[:8]

    # W&B's error reports would block the process without a network; tables are staged for upload.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_DATA_DIR", str(Path(save_dir).absolute()))
    settings = wandb.Settings(
        x_disable_meta=True,
        save_code=False,
        disable_git=True,
        console="off",
        silent=True,
        init_timeout=timeout_s,
        finish_timeout=timeout_s,
        finish_timeout_raises=True,
    )
    labels = {"project": project, "group": group, "name": name, "tags": tags}
    labels["job_type"] = job_type or "train"
    options: dict[str, Any] = {
        **redacted(labels),
        "resume": "allow",
        "reinit": "create_new",  # separate from other open runs of this process
        "dir": str(save_dir),
        "settings": settings,
    }
    mode = os.environ.get("WANDB_MODE") or ("online" if has_wandb_key() else "offline")
    run = None
    if mode not in ("offline", "disabled"):
        try:
            run = wandb.init(mode=mode, id=run_id, **options)  # type: ignore[arg-type]
        except Exception as error:  # no network, no quota, a bad key, a time-out
            reason = redacted(str(error))
            say(f"W&B: {reason}; this run is logged offline (wandb sync sends it later)")
            wandb.teardown(exit_code=1)  # else the failed attempt holds the id
            mode = "offline"
    if run is None:
        run = wandb.init(mode=mode, id=run_id, **options)  # type: ignore[arg-type]
    replace_text(id_file, run_id)
    run.define_metric(STEP)  # Lightning does so only for runs that it opens
    run.define_metric("*", step_metric=STEP, step_sync=True)
    return WandbRun(run, timeout_s)
