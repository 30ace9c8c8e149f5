"""`isotrain export`: what is rejected, and what is left after a failure."""

import pytest
import torch

from isotrain.cli import main
from isotrain.export import folders
from isotrain.runs.files import read_result, write_result
from tests.stopped_runs import save_weights

RTE = ("task=rte", "isotropy=clip", "metric=[]")
ONE = ("--format", "transformers")


@pytest.fixture
def run(made_run):
    return made_run(*RTE)


def changed(run, **changes):
    write_result(run, {**read_result(run), **changes})


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rejected(capsys, run, *more):
    """What is reported, on one line, where nothing is written."""
    before = files_of(run)
    assert main(["export", str(run), *more]) == 2
    assert files_of(run) == before
    return " ".join(capsys.readouterr().err.split())


def test_by_default_what_is_possible_is_written_and_the_rest_is_reported(run, capsys):
    assert main(["export", str(run)]) == 0
    message = " ".join(capsys.readouterr().out.split())
    assert [p.name for p in (run / "export").iterdir()] == ["transformers"]
    assert "encoder and head, the isotropy layer folded into the head; 32 dev examples" in message
    assert "not written: format=sentence-transformers" in message


def test_folders_that_are_no_finished_run_are_rejected(run, capsys, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no result.json of a training run" in rejected(capsys, empty)
    for damaged in ("{", "[]"):
        (empty / "result.json").write_text(damaged)
        message = rejected(capsys, empty)
        assert message.startswith(f"isotrain: this cannot run {empty / 'result.json'} is damaged (")
        assert "DamagedError" not in message
    (empty / "result.json").write_text('{"status": "finished", "config": {"analysis": 1}}')
    assert "no result.json of a training run" in rejected(capsys, empty)
    changed(run, status="running")
    assert "that run is running, not finished" in rejected(capsys, run)


def test_a_record_that_names_foreign_code_is_rejected_and_not_called(run, capsys):
    config = read_result(run)["config"]
    marker = run.parent / "called"
    config["isotropy"] = {"_target_": "os.mkdir", "path": str(marker)}
    changed(run, config=config)
    assert "os.mkdir" in rejected(capsys, run)
    assert not marker.exists()


def test_where_nothing_is_possible_nothing_is_written(made_run, capsys):
    layer = ("isotropy=cluster_pca", "isotropy.n_clusters=3", "site=[tokens]")
    run = made_run("task=rte", "pooling=mean", *layer, "metric=[]")
    message = rejected(capsys, run)
    assert "the encoder alone would lack the layer at tokens" in message
    assert "form=cross reads two as one sequence" in message


def test_a_run_without_weights_is_rejected_with_the_command(run, capsys):
    (run / "weights.safetensors").unlink()
    assert "checkpoint.final=true rerun=true" in rejected(capsys, run)


def test_weights_of_another_model_are_rejected(run, capsys):
    save_weights({"model.head.linear.bias": torch.zeros(2)}, run)
    assert "does not match this IsotropicModel" in rejected(capsys, run)
    (run / "weights.safetensors").write_bytes(b"no checkpoint")
    assert "weights.safetensors is damaged" in rejected(capsys, run)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("predictions/dev.csv", "index,lab"),
        ("predictions/dev.csv", "index,label,prediction\n0,1,0\n1,"),
        ("predictions/test.csv", "\0"),
        ("metrics.jsonl", '{"step": 0}\n{"st\n'),
        ("metrics.jsonl", '{"isotropy/mean_cosine/pooled/after": 0.1}\n'),
    ],
)
def test_files_of_a_run_that_are_damaged_are_rejected(run, capsys, name, content):
    result = read_result(run)
    changed(run, scores={**result["scores"], "test/accuracy": 0.5})
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text(content)
    rejected(capsys, run)


def test_a_folder_that_exists_is_never_replaced(run, capsys, tmp_path):
    theirs = tmp_path / "to" / "transformers"
    theirs.mkdir(parents=True)
    (theirs / "thesis.txt").write_text("years of work")
    message = rejected(capsys, run, "--to", str(theirs.parent))
    assert f"{theirs} exists; delete it, or give another --to" in message
    assert [*files_of(theirs.parent).values()] == [b"years of work"]


def test_what_came_into_its_place_meanwhile_stays(run, monkeypatch, capsys):
    folder, save = run / "export" / "transformers", folders.save_file

    def save_slowly(tensors, path):
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
        save(tensors, path)

    monkeypatch.setattr(folders, "save_file", save_slowly)
    assert main(["export", str(run), *ONE]) == 1
    assert "not empty" in capsys.readouterr().err
    assert [p.name for p in folder.parent.rglob("*") if p.is_file()] == ["thesis.txt"]


def test_what_differs_from_the_run_is_not_kept(run, monkeypatch, capsys):
    save = folders.save_file

    def slightly_off(tensors, path):
        save({name: x * (1 + 1e-5) for name, x in tensors.items()}, path)

    monkeypatch.setattr(folders, "save_file", slightly_off)
    assert main(["export", str(run), *ONE]) == 1
    assert f"{run / 'export/transformers'} is not kept" in " ".join(capsys.readouterr().err.split())
    assert not list((run / "export").iterdir())
