"""The runs of a call: planned before anything runs, launched where they are missing."""

import os
import pickle
import re
import signal
import sys

import pytest

from isotrain.config.compose import compose_run, plain
from isotrain.results.markdown import first_tables
from isotrain.runner import folder_of
from isotrain.studies.call import RunError

ORDER = [f"{method}-{seed}" for seed in (0, 1) for method in ("none", "mean")]


def texts(jobs):
    return [f"{job.method}-{job.seed}" for job in jobs]


def errors(capsys, code):
    """The lines of a call that could not run."""
    assert code == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "isotrain: this cannot run"
    return [line.strip() for line in lines]


def test_the_order_and_that_each_run_is_the_one_that_its_overrides_make(fake):
    fake.says(tasks="{rte: [task=rte], wic: [task=wic, data.batch_size=16]}", seeds="[4, 3]")
    jobs, call = fake.planned("trainer.max_steps=7", "data.eval_batch_size=8")
    assert [job.name for job in jobs] == [
        f"{task}-{method}-seed{seed}"
        for seed in (4, 3)
        for task in ("rte", "wic")
        for method in ("none", "mean")
    ]
    assert call.folder == fake.folder
    assert len({job.folder for job in jobs}) == 8
    of_methods = {(job.task, job.method): job.definition for job in jobs}
    assert len(set(of_methods.values())) == 4
    assert all(job.definition == of_methods[job.task, job.method] for job in jobs), "any seed"
    for job in jobs:
        alone = compose_run(job.overrides)
        assert folder_of(alone) == job.folder
        assert (alone.seed, alone.threads, alone.trainer.max_steps) == (job.seed, 1, 7)
        assert (alone.method, alone.study) == (job.method, "few")
        assert alone.data.batch_size == (16 if job.task == "wic" else 32)


def test_a_run_of_a_study_is_the_run_that_a_command_line_makes(fake):
    jobs, _ = fake.planned()
    line = ["encoder=tiny", "source=demo", "task=rte", "isotropy=mean", "seed=1", "threads=1"]
    alone = compose_run([*line, f"output_dir={fake.runs}"])
    assert folder_of(alone) == jobs[-1].folder
    launched = plain(compose_run(jobs[-1].overrides))
    assert launched | {"method": None, "study": None} == plain(alone)


@pytest.mark.parametrize(
    ("given", "threads"),
    [([], 1), (["threads=2"], 2), (["experiment=mine"], 3), (["experiment=mine", "threads=2"], 2)],
)
def test_threads_are_1_unless_they_are_given(fake, tmp_path, given, threads):
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\nthreads: 3\ndata: {batch_size: 8}\n")
    fake.says(seeds="[0]", overrides=f"[encoder=tiny, source=demo, {', '.join(given)}]")
    place = ["--config-dir", str(tmp_path)]
    own = [f"study='{fake.file}'", f"output_dir={fake.runs}"]
    jobs, call = fake.planned("-m", *own, *place)
    assert call.config_dir == str(tmp_path)
    for job in jobs:
        cfg = compose_run(job.overrides, str(tmp_path))
        assert cfg.threads == threads
        assert folder_of(cfg) == job.folder


def test_every_error_at_once_with_the_methods_that_have_it(fake, capsys):
    fake.says(
        overrides="[encoder=tiny, source=demo, sede=1, data.batch_size=a, optimizer.lrr=1]",
        tasks="{rte: [task=rte], wic: [task=wicc]}",
        methods="{none: [isotropy=none], mean: [isotropy=men], cut: [pooling=spans, a=1]}",
    )
    output = errors(capsys, fake.run())
    assert len(output) == len(set(output))
    expected = {
        "no key sede; did you mean seed?": "",
        "task=wicc does not exist; did you mean wic?": "wic-none, wic-mean, wic-cut: ",
        "isotropy=men does not exist; did you mean mean?": "rte-mean, wic-mean: ",
        "no key optimizer.lrr; did you mean optimizer.lr?": "",
    }
    for text, places in expected.items():
        assert places + text in output
    (of_all,) = (line for line in output if "data.batch_size=a" in line)
    assert of_all.startswith("data.batch_size=a: ")
    (of_cut,) = (line for line in output if "no key a" in line)
    assert of_cut.startswith("rte-cut, wic-cut: ")
    assert not fake.runs.exists()


def test_a_wrong_argument_is_reported_before_anything_runs(fake, capsys):
    fake.says(
        tasks="{rte: [task=rte], wic: [task=wic]}",
        methods="{none: [isotropy=none], clip: [isotropy=clip, isotropy.rho=2.0]}",
    )
    output = errors(capsys, fake.run())
    assert [line.partition(":")[2] for line in output] == [
        " isotropy.rho must be at most 1, got 2.0"
    ]
    assert not fake.started


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        ({"overrides": "[seed=5]"}, [], "seed=5: the seeds are [0, 1]; change them in the file"),
        ({}, ["seed=5"], "seed=5: the seeds are [0, 1]; change them in the file"),
        ({}, ["seed=5,6"], "seed has several values; write them in methods or grid"),
        (
            {"methods": "{none: [isotropy=none], plain: [isotropy=none, rerun=true]}"},
            [],
            "rte-none and rte-plain would compute the same; change or drop one",
        ),
        ({"baseline": "nome"}, [], "study few: baseline: no nome; did you mean none?"),
    ],
)
def test_what_a_study_cannot_be(fake, capsys, change, given, said):
    fake.says(**change)
    (output,) = errors(capsys, fake.run(*given))
    assert output.endswith(said)
    assert not fake.runs.exists()


def test_the_name_of_a_method_may_be_given(fake, capsys):
    fake.says(methods="{none: [isotropy=none, method=plain], mean: [isotropy=mean, method=a-b]}")
    jobs, _ = fake.planned()
    assert [job.folder.name.rpartition("-")[0] for job in jobs[:2]] == ["plain", "a-b"]
    assert fake.run() == 0
    assert fake.plan.jobs[0].folder == jobs[0].folder
    assert "| mean " in (fake.folder / "table.md").read_text()


def test_a_study_runs_in_its_order_and_then_nothing_is_left(fake, capsys):
    assert fake.run() == 0
    printed = capsys.readouterr().out
    assert fake.started == ORDER
    assert "study few: 4 runs, 0 finished before, 4 to do, 1 at a time; " in printed
    assert re.search(r"\ndone rte-mean-seed1: 61\.2 on dev \(\d+ s\)\n", printed)
    table = (fake.folder / "table.md").read_text()
    assert printed.count(first_tables(table)) == 1
    jobs, _ = fake.planned()
    assert sorted(fake.runs.glob("rte/*")) == sorted(job.folder for job in jobs)
    stamps = {file: file.stat().st_mtime_ns for file in fake.runs.glob("rte/**/*")}
    assert fake.run() == 0
    assert "4 runs, 4 finished before, 0 to do" in capsys.readouterr().out
    assert fake.started == ORDER
    assert {file: file.stat().st_mtime_ns for file in fake.runs.glob("rte/**/*")} == stamps
    assert (fake.folder / "table.md").read_text() == table


def test_finished_runs_reach_no_launcher_unless_they_are_to_run_again(fake):
    fake.failing["mean", 1] = ValueError("no")
    assert fake.run() == 1
    fake.failing.clear()
    del fake.started[:]
    assert fake.run() == 0
    assert fake.started == ["mean-1"]
    assert fake.run("rerun=true") == 0
    assert fake.started == ["mean-1", *ORDER]


def test_a_failure_stops_no_other_run_and_is_reported(fake, capsys):
    fake.failing["none", 1] = ValueError("the | reason\nin words")
    assert fake.run() == 1
    assert fake.started == ORDER
    printed = capsys.readouterr().out
    (log,) = (fake.folder / "logs").glob("rte-none-seed1-*.log")
    assert re.search(
        rf"failed rte-none-seed1: ValueError: the \| reason\nin words; {log} \(", printed
    )
    assert "Traceback" in log.read_text()
    assert "3 of 4 runs finished" in printed


@pytest.mark.parametrize("code", [0, 3])
def test_a_part_that_exits_fails_as_a_part_that_raises(fake, code, capsys):
    fake.failing["none", 1] = SystemExit(code)
    assert fake.run() == 1
    assert fake.started == ORDER
    assert f"failed rte-none-seed1: SystemExit: {code}" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_call_and_the_same_command_goes_on(fake, number, capsys):
    before = signal.getsignal(signal.SIGTERM)
    fake.says(
        seeds="[0]", methods="{none: [isotropy=none], mean: [isotropy=mean], zca: [isotropy=zca]}"
    )
    fake.failing["mean", 0] = lambda: os.kill(os.getpid(), number)
    assert fake.run() == 128 + number
    assert fake.started == ORDER[:2]
    assert signal.getsignal(signal.SIGTERM) == before
    printed = capsys.readouterr().out
    assert "study few: stopped; the same command goes on" in printed
    assert "failed" not in printed
    assert not (fake.folder / "table.md").exists()
    fake.failing.clear()
    assert fake.run() == 0
    assert fake.started == ["none-0", "mean-0", "mean-0", "zca-0"]


@pytest.mark.parametrize("code", [129, 138, 140, 143])
def test_a_run_that_handles_its_signals_gives_its_exit_code(fake, code):
    fake.failing["mean", 0] = SystemExit(code)
    assert fake.run() == code


def test_a_list_of_runs_launches_and_writes_nothing(fake, capsys):
    assert fake.run("--list", "data.batch_size=8", "logger=[wandb]") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "4 runs of study few"
    assert [line.partition(":")[0] for line in lines] == [
        f"rte-{method}-seed{seed} (to do)" for seed in (0, 1) for method in ("none", "mean")
    ]
    shown = lines[1].partition(": ")[2].split(" ")
    jobs, _ = fake.planned("data.batch_size=8", "logger=[wandb]")
    assert tuple(shown) == jobs[1].overrides
    assert not fake.runs.exists()
    assert not fake.started


def test_a_study_in_another_folder_shares_its_runs(fake, tmp_path):
    assert fake.run() == 0
    assert fake.run(f"hydra.sweep.dir={tmp_path / 'tables'}") == 0
    assert len(fake.started) == 4
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    tables = {"table.md", "table.csv", "table.tex", "runs.csv"}
    assert names == {"study.json", "lock", *tables}
    assert (tmp_path / "tables" / "table.csv").read_bytes() == (
        fake.folder / "table.csv"
    ).read_bytes()


def test_a_process_of_a_launcher_starts_no_study(fake, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    (output,) = errors(capsys, fake.run())
    assert "-m launches its runs itself" in output


def test_a_place_that_cannot_be_written_to(fake, capsys):
    fake.runs.write_text("a file")
    (output,) = errors(capsys, fake.run())
    assert "Not a directory" in output


def test_an_error_crosses_processes():
    error = pickle.loads(pickle.dumps(RunError("NonFiniteError", "the loss is nan")))
    assert (error.kind, error.message) == ("NonFiniteError", "the loss is nan")
    assert str(error) == "NonFiniteError: the loss is nan"


def test_a_sweep_is_the_product_of_the_values_of_a_command_line(fake, capsys):
    given = ["task=rte,wic", "isotropy=mean,clip", "seed=2,1", "objective=[cosreg]"]
    given += ["site=[tokens],[pooled]", "encoder=tiny", "source=demo", f"output_dir={fake.runs}"]
    jobs, call = fake.planned("-m", *given)
    methods = [f"{layer}_{site}" for layer in ("mean", "clip") for site in ("tokens", "pooled")]
    assert [job.name for job in jobs] == [
        f"{task}-{method}-seed{seed}"
        for seed in (2, 1)
        for task in ("rte", "wic")
        for method in methods
    ]
    for job in jobs:
        cfg = compose_run(job.overrides)
        assert folder_of(cfg) == job.folder
        assert (cfg.names["isotropy"], list(cfg.site), list(cfg.objective)) == (
            *(job.method.split("_")[0], [job.method.split("_")[1]], ["cosreg"]),
        )
    assert call.folder.parent == fake.runs / "sweeps"
    assert call.folder.name.startswith("task-isotropy-seed-site-")
    assert fake.planned("-m", *given, "threads=1")[1].folder != call.folder


def test_a_sweep_over_seeds_shares_the_runs_of_single_ones(fake, capsys):
    line = ["task=rte", "isotropy=zca", "objective=[cosreg]", "encoder=tiny", "source=demo"]
    given = ["-m", *line, f"output_dir={fake.runs}", "seed=range(2)"]
    jobs, _ = fake.planned(*given)
    alone = compose_run([*line, f"output_dir={fake.runs}", "seed=1", "threads=1"])
    assert [job.seed for job in jobs] == [0, 1]
    assert {job.method for job in jobs} == {"zca-cosreg"}
    assert jobs[1].folder == folder_of(alone)


@pytest.mark.parametrize("words", [["run"], ["train", "-m"]])
def test_a_study_and_a_search_at_once_are_rejected(fake, capsys, words):
    own = str(fake.file) if words == ["run"] else f"study='{fake.file}'"
    (output,) = errors(capsys, fake.main(*words, own, "search=smoke_search"))
    assert output == f"study={fake.file} search=smoke_search: start one, and then the other"
    assert not fake.started


def test_the_number_of_runs_at_a_time_is_that_of_the_launcher(fake, monkeypatch):
    own = [f"study='{fake.file}'", f"output_dir={fake.runs}"]
    assert fake.planned("-m", *own)[1].n_at_once == 1
    joblib = ["hydra/launcher=joblib", "hydra.launcher.n_jobs"]
    assert fake.planned("-m", *own, joblib[0], f"{joblib[1]}=3")[1].n_at_once == 3
    calls = [fake.planned("-m", *own, joblib[0], f"{joblib[1]}=-{n}")[1] for n in (1, 2, 9)]
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert [call.n_at_once for call in calls] == [4, 3, 1], "all cores but n - 1"


def test_ray_is_needed_where_it_is_chosen(fake, monkeypatch, capsys):
    jobs, call = fake.planned("hydra/launcher=ray")
    call.announce(jobs)
    assert "4 to do, as many at a time as there is room for; " in capsys.readouterr().out
    assert fake.planned("hydra/launcher=ray", "hydra.launcher.n_jobs=3")[1].n_at_once == 3
    monkeypatch.setitem(sys.modules, "ray", None)
    given = ("hydra.launcher.ray.remote.num_cpus=2", "+hydra.launcher.ray.remote.num_gpus=0.5")
    assert fake.run("hydra/launcher=ray", *given) == 2
    assert re.search(r"hydra/launcher=ray needs Ray \(.*\[ray", capsys.readouterr().err)
    assert not fake.started


def test_names_of_methods_that_differ_in_signs_alone_are_numbered(fake):
    given = ["-m", "encoder=tiny", "source=demo", "task=rte", f"output_dir={fake.runs}"]
    jobs, _ = fake.planned(*given, "freezing=only", "freezing.patterns=[a?],[a*]")
    assert [job.method for job in jobs] == ["patterns_a", "patterns_a.2"]


def test_overrides_do_not_undo_what_a_study_compares(fake, capsys):
    (output,) = errors(capsys, fake.run("isotropy=zca"))
    assert output == "isotropy=zca: tasks or methods of the study set it; change it in the file"
    assert fake.run("optimizer.lr=1e-3") == 0


def test_scores_of_different_tasks_are_not_compared(fake, capsys):
    (fake.file.parent / "mixed.yaml").write_text(
        fake.file.read_text().replace("isotropy=mean", "task=wic")
    )
    (output,) = errors(capsys, fake.main("run", str(fake.file.parent / "mixed.yaml")))
    assert output.startswith("scores of rte and wic do not compare in one table (rte); ")
