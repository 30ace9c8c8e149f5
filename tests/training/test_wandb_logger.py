"""Whether W&B has a key decides the mode; a run never waits for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from isotrain.training import wandb_logger
from isotrain.training.wandb_logger import build_wandb_logger, has_key

LOGGER = SimpleNamespace()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_no_key():
    assert not has_key()


def test_a_key_in_the_environment(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert has_key()


@pytest.mark.parametrize("place", ["home", "variable"])
def test_a_key_in_the_netrc(monkeypatch, tmp_path, place):
    path = tmp_path / (".netrc" if place == "home" else "elsewhere")
    path.write_text("machine api.wandb.ai\n  login user\n  password 0123\n")
    path.chmod(0o600)
    if place == "variable":
        assert not has_key()
        monkeypatch.setenv("NETRC", str(path))
    assert has_key()
    assert not has_key("other.host")


def test_a_broken_netrc_is_no_key(tmp_path):
    (tmp_path / ".netrc").write_text("machine\n")
    assert not has_key()


@pytest.mark.parametrize(
    ("key", "variable", "mode"),
    [
        (False, None, "offline"),
        (True, None, "online"),
        (True, "offline", "offline"),
        (False, "disabled", "disabled"),
    ],
)
def test_the_mode_and_what_is_sent(monkeypatch, tmp_path, key, variable, mode):
    import wandb

    asked, axes = {}, []

    class Run:
        offline, step = True, 0

        def define_metric(self, *names, **options):
            axes.append((names, options.get("step_metric")))

    def init(**options):
        asked.update(options)
        return Run()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb_logger, "WandbLogger", lambda experiment: LOGGER)
    monkeypatch.setattr(wandb_logger, "has_key", lambda: key)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    found = build_wandb_logger("project", "group", save_dir=tmp_path, name="run")
    assert found is LOGGER
    assert asked["mode"] == mode
    assert (asked["project"], asked["group"], asked["name"]) == ("project", "group", "run")
    assert asked["dir"] == str(tmp_path)
    assert (("*",), "trainer/global_step") in axes
    assert asked["settings"].x_disable_meta
    assert not asked["settings"].save_code


def test_an_unreachable_service_leaves_the_run_offline(monkeypatch, tmp_path, capsys):
    import wandb

    modes = []

    class Run:
        offline, step = True, 0

        def define_metric(self, *names, **options):
            pass

    def init(mode, **options):
        modes.append(mode)
        if mode == "online":
            raise wandb.errors.CommError("no answer")
        return Run()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb_logger, "WandbLogger", lambda experiment: LOGGER)
    monkeypatch.setattr(wandb_logger, "has_key", lambda: True)
    assert build_wandb_logger("p", None, save_dir=tmp_path, name="run") is LOGGER
    assert modes == ["online", "offline"]
    assert "logged offline" in capsys.readouterr().out
