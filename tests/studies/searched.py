"""A search whose runs are a formula instead of a training."""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from omegaconf import OmegaConf

from isotrain.runs.files import read_result, write_result
from isotrain.runs.stored import PlanError
from isotrain.studies import search
from isotrain.studies.call import Ended, Job, RunError
from isotrain.studies.search import Search, run_search
from isotrain.studies.trials import opened, storage_url

KEYS = {
    "name": "few",
    "overrides": ["task=rte", "encoder=tiny"],
    "space": {"optimizer.lr": "interval(0.0, 1.0)"},
    "n_trials": 4,
    "sampler": "RandomSampler",
    "pruner": "NopPruner",
}


def values_of(job):
    """The values of its overrides, as numbers where they are some."""
    pairs = (text.partition("=")[::2] for text in job.overrides)
    return {key: float(v) if v.replace(".", "").isdigit() else v for key, v in pairs}


def formula(job):
    """A score that is highest at optimizer.lr=0.3."""
    return 1 - (values_of(job)["optimizer.lr"] - 0.3) ** 2 + job.seed / 100


class FakeCall:
    """One call of a sweeper; `score(job)` is what a run does: a score, or an error."""

    launcher = "basic"

    def __init__(self, folder, score=formula, n_at_once=1, overrides=()):
        self.folder, self.score, self.n_at_once = Path(folder), score, n_at_once
        self.overrides, self.config_dir, self.launched = list(overrides), None, []

    def compose(self, overrides):
        return OmegaConf.create({"task": {"_target_": "isotrain.tasks.wic.WiC"}})

    def plan(self, pairs, seeds, more=()):
        if wrong := [text for _, _, own in pairs for text in own if text.endswith("wrong")]:
            raise PlanError(f"{wrong[0]} is wrong\nand more")
        jobs = []
        for seed in seeds:
            for _, method, own in pairs:
                own = [*own, *self.overrides]
                text = hashlib.sha256(repr([sorted(own), seed]).encode()).hexdigest()[:10]
                task = next(t for t in own if t.startswith("task=")).partition("=")[2]
                named = [t.partition("=")[2] for t in own if t.startswith("method=")]
                folder = self.folder.parents[1] / task / f"{[*named, method][0]}-{text}"
                given = (*own, f"seed={seed}", *more)
                jobs.append(Job(task, method, seed, folder, given))
        return jobs

    def launch(self, jobs):
        return [self.run(job) for job in jobs]

    def run(self, job):
        if read_result(job.folder).get("status") == "finished":
            return Ended(job, None)
        self.launched.append(job)
        try:
            found = self.score(job)
        except RunError as error:
            return Ended(job, error)
        found = found if isinstance(found, dict) else {"scores": {"val/accuracy": found}}
        job.folder.mkdir(parents=True, exist_ok=True)
        write_result(job.folder, {"status": "finished"} | found)
        return Ended(job, None)


def searched(call, mode="max", **changed):
    """`run_search` with other keys, on a task that monitors accuracy."""
    search.task_of = lambda cfg: SimpleNamespace(monitor="accuracy", mode=mode)
    return run_search(call, Search(**{**KEYS, **changed}))


def trials(folder, storage=None):
    """The trials of its storage."""
    with opened(storage_url(storage, folder), "few") as study:
        return study.get_trials()


def main(folder, n_trials, n_at_once, kill_at, n_calls, storage):
    """One of several calls, which kills its process in its n-th run."""

    def score(job):
        if len(call.launched) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        while len(call.launched) == 1 and len([*(call.folder / "calls").iterdir()]) < n_calls:
            time.sleep(0.01)
        return formula(job)

    call = FakeCall(folder, score, n_at_once)
    more = {"storage": storage} if storage else {}
    return searched(call, n_trials=n_trials, sampler="TPESampler", **more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]))
