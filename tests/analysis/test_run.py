"""An analysis from start to end: parts kept, resumed, read again; before and after a run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf, open_dict
from safetensors.torch import load_file

from isotrain.analysis import run as run_module
from isotrain.analysis.data_sets import read_corpus
from isotrain.analysis.run import analyze, device_of, each_weights, file_digests, first_encoder
from isotrain.encoders.start import ENCODER, reinit_blocks
from isotrain.geometry.rng import rng_stream
from isotrain.runs.files import read_result, sha256_of, write_json
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.demo_generator import DemoSource
from tests.analysis.runs import tiny
from tests.analysis.toy import N_SENTENCES, Toy
from tests.judge import judged
from tests.stopped_runs import save_weights

LOAD = "isotrain.encoders.huggingface.load_encoder"


@pytest.fixture(autouse=True)
def toy():
    Toy.calls, Toy.stop = [], None
    return Toy


@pytest.fixture
def cfg_of(tmp_path):
    """The configuration of the toy on the tiny encoder, with other keys and published figures."""
    small = ("encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "device=cpu")

    def compose(*overrides, published=(), **arguments):
        given = (*small, f"output_dir={tmp_path / 'out'}", *overrides)
        cfg, errors = judged(given, root="analyze")
        assert errors == []
        with open_dict(cfg):
            cfg.analysis = {"_target_": "tests.analysis.toy.Toy", "published": list(published)}
            cfg.analysis.update(arguments)
        return cfg

    return compose


@pytest.fixture
def loads(monkeypatch):
    """How often an encoder was loaded."""
    seen = []

    def load(cfg, end):
        seen.append(end)
        return first_encoder(cfg, end)

    monkeypatch.setattr(run_module, "first_encoder", load)
    return seen


def records_of(folder):
    return [
        record
        for file in sorted((folder / "parts").glob("*.json"))
        for record in json.loads(file.read_text())["records"]
    ]


def test_a_whole_analysis(cfg_of, capsys):
    folder = analyze(cfg_of("seed=3"), ["analysis=toy", "rerun=true", "seed=3"])
    assert Toy.calls == ["first", "second"]
    assert folder.parent.name == "toy"
    assert folder.name.startswith("tiny-")
    record = read_result(folder)
    assert record["status"] == "finished"
    assert record["parts"] == [["as given", "first"], ["as given", "second"]]
    assert record["overrides"] == ["analysis=toy", "seed=3"]  # they give this folder again
    assert record["data"] == "demo-v1-seed0"
    assert record["weights"].startswith("tiny random BERT, width 16")
    assert record["environment"]["device"] == "cpu"
    assert {r["seed"] for r in records_of(folder)} == {3}
    printed = capsys.readouterr().out
    assert "first, weights as given: 0:0" in printed
    assert "| weights  | part" in printed


def test_a_finished_analysis_is_read_and_loads_no_encoder(cfg_of, loads, capsys):
    folder = analyze(cfg_of())
    before = {f: f.read_bytes() for f in folder.glob("*.csv")}
    assert loads == [None]
    capsys.readouterr()
    again = analyze(cfg_of())
    assert again == folder
    assert loads == [None]
    assert Toy.calls == ["first", "second"]
    assert {file: file.read_bytes() for file in before} == before
    printed = capsys.readouterr().out
    assert f"{folder} is finished; rerun=true measures again" in printed
    assert "| weights  | part" in printed


def test_rerun_measures_again_and_gives_the_same(cfg_of, loads):
    folder = analyze(cfg_of())
    before = records_of(folder)
    analyze(cfg_of("rerun=true"))
    assert len(loads) == 2
    assert Toy.calls == ["first", "second"] * 2
    assert records_of(folder) == before


class KilledError(BaseException):
    pass


def kill_at(name):
    def stop(part):
        if part == name:
            raise KilledError

    return stop


def test_a_stopped_analysis_goes_on_at_its_part(cfg_of):
    whole = analyze(cfg_of("seed=0", f"output_dir={cfg_of().output_dir}/whole"))
    Toy.calls, Toy.stop = [], kill_at("second")
    with pytest.raises(KilledError):
        analyze(cfg_of())
    assert Toy.calls == ["first", "second"]
    Toy.calls, Toy.stop = [], None
    folder = analyze(cfg_of())
    assert Toy.calls == ["second"]
    assert records_of(folder) == records_of(whole)


def nothing_written(cfg, match):
    with pytest.raises(CannotRunError, match=match):
        analyze(cfg)
    assert not Path(str(cfg.output_dir)).exists()


def test_what_cannot_run_writes_nothing(cfg_of, tmp_path):
    nothing_written(cfg_of(published=[{"value": 1}]), "encoder\\n  Field required")
    nothing_written(cfg_of(corpus="sst2"), "source=demo has .*, not sst2; use source=local")
    nothing_written(cfg_of("encoder.width=7"), "hidden size|multiple|heads")
    cfg = cfg_of()
    cfg.encoder = {"_target_": LOAD, "name": str(tmp_path / "empty"), "revision": None}
    nothing_written(cfg, "empty")


def test_the_device_is_that_which_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [device_of(asked) for asked in ("auto", "cpu")] == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [device_of(asked) for asked in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


def test_a_file_that_a_key_names_is_known_by_its_content(tmp_path):
    vectors, folder = tmp_path / "v.npy", tmp_path / "model"
    vectors.write_bytes(b"rows")
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(b"w")
    (folder / "deep" / "other").write_bytes(b"o")
    own = {"static": [str(vectors)], "n": 3, "none": "", "words": ["dog"]}
    assert file_digests([own, {"name": str(folder)}]) == {
        str(file): sha256_of(file)[:12] for file in (vectors, folder / "weights")
    }


@pytest.fixture
def finished_run(cfg_of, tmp_path):
    """`finished_run(seed, …)`: a run folder whose encoder was drawn with seed, then trained.

    Weights are scaled: a sum added to all of them would be a mean that the norms subtract again,
    and rounding is 20 times larger there.
    """

    def write(seed=5, name="run", init_from=None, reinit_blocks=0, scale=1.5):
        folder = tmp_path / name
        folder.mkdir()
        encoder = tiny(seed=99)
        state = {f"{ENCODER}{key}": value * scale for key, value in encoder.state_dict().items()}
        config = {
            "seed": seed,
            "encoder": OmegaConf.to_container(cfg_of().encoder),
            "checkpoint": {"final": True},
            "training": {"reinit_blocks": reinit_blocks},
        }
        write_json(
            folder / "result.json",
            {"status": "finished", "config": config, "init_from": init_from},
        )
        save_weights({**state, "model.head.weight": torch.zeros(2)}, folder)
        return folder

    return write


def arrays_of(folder):
    return {
        weights: np.load(folder / "parts" / f"{weights}-first.npz")["first"]
        for weights in ("before", "after")
    }


def states_of(encoder):
    """What the toy measures of an encoder: pooled last states of its sentences."""
    sentences = read_corpus(DemoSource(), "rte", ["dev"], "[UNK]")[:N_SENTENCES]
    found = []
    with torch.no_grad():
        for text in sentences:
            ids = torch.tensor([encoder.tokenizer(text)["input_ids"]])
            found.append(encoder.model(input_ids=ids).last_hidden_state[0].mean(dim=0).numpy())
    return np.stack(found)


def test_before_is_the_encoder_of_the_runs_seed_and_after_its_last_weights(cfg_of, finished_run):
    run = finished_run(seed=5)
    folder = analyze(cfg_of(f"from_run={run}", "seed=1"))
    assert read_result(folder)["parts"] == [
        [weights, part] for weights in ("before", "after") for part in ("first", "second")
    ]
    found = arrays_of(folder)
    np.testing.assert_allclose(found["before"], states_of(tiny(seed=5)), atol=1e-5)
    trained = tiny(seed=99)
    trained.load_state_dict({k: v * 1.5 for k, v in trained.state_dict().items()})
    np.testing.assert_allclose(found["after"], states_of(trained), atol=1e-5)
    assert np.abs(found["after"] - found["before"]).max() > 0.1
    assert f"before and after {run}" in (folder / "analysis.html").read_text()
    means = (folder / "means.csv").read_text()
    assert "\nbefore," in means
    assert "\nafter," in means


def test_before_has_the_blocks_that_the_run_drew_anew(cfg_of, finished_run):
    encoder = tiny(seed=5)
    with rng_stream(5, "reinit_blocks"):
        reinit_blocks(encoder, 1)
    folder = analyze(cfg_of(f"from_run={finished_run(seed=5, reinit_blocks=1)}"))
    np.testing.assert_allclose(arrays_of(folder)["before"], states_of(encoder), atol=1e-5)
    plain = states_of(tiny(seed=5))
    assert np.abs(arrays_of(folder)["before"] - plain).max() > 1e-3


def test_before_a_run_that_started_from_another_is_the_end_of_that_one(cfg_of, finished_run):
    first = finished_run(name="first", scale=1.2)
    record = {"path": str(first), "sha256": sha256_of(first / "weights.safetensors")}
    second = finished_run(name="second", scale=1.4, init_from=record)
    of_first = analyze(cfg_of(f"from_run={first}"))
    of_second = analyze(cfg_of(f"from_run={second}"))
    np.testing.assert_array_equal(arrays_of(of_second)["before"], arrays_of(of_first)["after"])
    save_weights({}, first)  # another by now
    with pytest.raises(CannotRunError, match="which is gone, or is another by now"):
        analyze(cfg_of(f"from_run={second}", "rerun=true"))


def test_a_run_that_changed_is_measured_again(cfg_of, finished_run):
    run = finished_run()
    analyze(cfg_of(f"from_run={run}"))
    state = load_file(run / "weights.safetensors")
    save_weights({k: v * 1.01 for k, v in state.items()}, run)
    Toy.calls = []
    analyze(cfg_of(f"from_run={run}"))
    assert Toy.calls == ["first", "second"] * 2


def test_the_encoder_as_given_is_one_and_in_evaluation_mode(cfg_of, encoder):
    assert not first_encoder(cfg_of("device=cpu"), None).training
    assert [*each_weights(encoder, None)] == [("as given", encoder)]
