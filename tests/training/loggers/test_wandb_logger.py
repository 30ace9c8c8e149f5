"""How a W&B run begins and ends, read back from its record; what the mode depends on."""

from types import SimpleNamespace

import pytest
import wandb

from isotrain.config.environment import has_wandb_key
from isotrain.runs.files import read_records
from isotrain.training.loggers import wandb_logger
from isotrain.training.loggers.jsonl import RecordLog, close_loggers, open_loggers
from isotrain.training.loggers.wandb_logger import WandbRun, build_wandb_logger
from tests import wandb_record


@pytest.fixture(autouse=True)
def no_keys(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_key_in_the_environment(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "")
    assert not has_wandb_key()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert has_wandb_key()


@pytest.mark.parametrize("place", ["home", "variable"])
def test_a_key_in_the_netrc(monkeypatch, tmp_path, place):
    path = tmp_path / (".netrc" if place == "home" else "elsewhere")
    path.write_text("machine api.wandb.ai\n  login user\n  password 0123\n")
    path.chmod(0o600)
    if place == "variable":
        assert not has_wandb_key()
        monkeypatch.setenv("NETRC", str(path))
    assert has_wandb_key()
    assert not has_wandb_key("other.host")


@pytest.mark.parametrize(
    ("key", "variable", "mode"),
    [
        (False, None, "offline"),
        (True, None, "online"),
        (True, "offline", "offline"),
        (False, "disabled", "disabled"),
    ],
)
def test_which_mode_is_asked_for(monkeypatch, tmp_path, key, variable, mode):
    asked = {}

    class Run:
        offline, starting_step = True, 0

        def define_metric(self, *names, **options):
            pass

    def init(**options):
        asked.update(options)
        return Run()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb_logger, "has_wandb_key", lambda: key)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    build_wandb_logger("project", "group", save_dir=tmp_path, name="run")
    assert asked["mode"] == mode
    assert asked["dir"] == str(tmp_path)


@pytest.fixture
def begin(monkeypatch, tmp_path):
    """Begins a run offline in a folder of its own; its logger and the folder."""
    monkeypatch.setenv("WANDB_MODE", "offline")

    def begin_in(name="run", **more):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        options = {"project": "project", "group": "group", "name": name} | more
        return build_wandb_logger(save_dir=folder, **options), folder

    return begin_in


@pytest.mark.parametrize("failed", [False, True])
def test_what_a_run_is_called_and_how_it_ends(begin, capsys, failed):
    logger, folder = begin(job_type="analyse", tags=["wic", "first"])
    logger.log_hyperparams({"optimizer": {"lr": 0.1}, "seed": 3})
    logger.log_metrics({"val/accuracy": 0.5, "isotropy/isoscore/layer_00/cls": 0.25}, 7)
    logger.finalize("success")  # Lightning does so after each of its stages
    logger.log_metrics({"val/accuracy": 0.75}, 9)
    logger.close(failed=failed)
    record = wandb_record.newest(folder)
    run = wandb_record.run_of(record)
    assert (run.project, run.run_group, run.job_type) == ("project", "group", "analyse")
    assert (run.display_name, list(run.tags)) == ("run", ["wic", "first"])
    assert run.run_id == (folder / "wandb_id").read_text()
    config = wandb_record.config(record)
    assert (config["optimizer"], config["seed"]) == ({"lr": 0.1}, 3)
    rows = wandb_record.scalars(record)
    assert [(row["trainer/global_step"], row["val/accuracy"]) for row in rows] == [
        (7, 0.5),
        (9, 0.75),
    ]
    assert rows[0]["isotropy/isoscore/layer_00/cls"] == 0.25
    assert wandb_record.exit_codes(record) == [int(failed)]
    assert f"wandb sync {record.parent}" in capsys.readouterr().out


def test_runs_of_one_process_do_not_merge_nor_touch_another_run(begin, tmp_path):
    own = wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True))
    for name in ("one", "two"):
        logger, folder = begin(name)
        logger.log_metrics({name: 1.0}, 0)
        logger.close(failed=name == "one")
        record = wandb_record.newest(folder)
        (row,) = wandb_record.scalars(record)
        assert {"one", "two"} & set(row) == {name}
        assert wandb_record.exit_codes(record) == [int(name == "one")]
    assert wandb.run is own
    own.log({"mine": 1.0})
    own.finish()
    (row,) = wandb_record.scalars(wandb_record.newest(tmp_path))
    assert row["mine"] == 1.0


class Broken(WandbRun):
    """Fails when it is closed."""

    def close(self, failed):
        super().close(failed)
        raise wandb.errors.CommError("no more quota")


def test_a_logger_that_cannot_be_opened_or_closed_costs_no_run(begin, capsys):
    logger, folder = begin()
    builders = {
        "mine": lambda save_dir, name: Broken(logger.experiment, 1.0),
        "other": lambda save_dir: None,
    }
    open_loggers(trainer := SimpleNamespace(), builders, folder, {"seed": 0}, n_bytes=0)
    assert [type(one) for one in trainer.loggers] == [RecordLog, Broken], "Lightning has them all"
    for one in trainer.loggers:
        one.log_metrics({"a": 1.0}, 0)
    close_loggers(trainer, failed=False)
    printed = capsys.readouterr().out
    assert "logger.other is left out (AttributeError: " in printed
    assert "Broken was not closed (CommError: no more quota)" in printed
    assert [row["step"] for row in read_records(folder / "metrics.jsonl")] == [0]
    record = wandb_record.newest(folder)
    assert len(wandb_record.scalars(record)) == 1
    assert wandb_record.exit_codes(record) == [0]


def test_a_logger_of_lightning_is_closed_too(monkeypatch, tmp_path):
    from pytorch_lightning.loggers import WandbLogger

    def build(save_dir, name):
        return WandbLogger(name=name, save_dir=save_dir, offline=True, project="p")

    monkeypatch.setenv("WANDB_MODE", "offline")
    open_loggers(trainer := SimpleNamespace(), {"mine": build}, tmp_path, {"seed": 0}, n_bytes=0)
    trainer.loggers[1].log_metrics({"a": 1.0}, 0)
    close_loggers(trainer, failed=True)
    assert wandb.run is None
    assert wandb_record.exit_codes(wandb_record.newest(tmp_path)) == [1]
