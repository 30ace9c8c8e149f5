"""Runs to damage, and the table of how the cases ended."""

import pytest

from isotrain.tasks.data.demo_generator import DemoSource
from tests.hostile.harness import TINY, ended


@pytest.fixture(scope="session")
def hostile_runs(tmp_path_factory):
    """A folder with a finished run in `whole/` and a stopped one, with checkpoint, in `stopped/`.

    Of the same command, `OF_RUNS` of `test_folders`, but for the folder.
    """
    from tests.hostile.test_folders import OF_RUNS, stop_after

    root = tmp_path_factory.mktemp("runs")
    end = ended(["train", *OF_RUNS, "output_dir=whole"], root, limit_s=600)
    assert end.kind == "ran", end.text
    end = ended(lambda: stop_after([*OF_RUNS, "output_dir=stopped"], 80), root, limit_s=600)
    assert end.code == -9, end.text
    assert len(list(root.glob("stopped/*/*/[br]es*.ckpt"))) == 2
    return root


STUDY = """overrides: [OVERRIDES]
tasks: {wic: [task=wic]}
methods: {none: [isotropy=none], clip: [isotropy=clip]}
baseline: none
seeds: [0]
"""
SEARCH = """overrides: [OVERRIDES, task=stsb, task.form=bi, pooling=mean]
space: {optimizer.lr: "choice(0.1, 0.01)"}
sampler: RandomSampler
n_trials: 2
"""


@pytest.fixture(scope="session")
def hostile_plans(tmp_path_factory):
    """A study of two runs and a search of two trials, each in `out` of its own folder."""
    root = tmp_path_factory.mktemp("plans")
    overrides = ", ".join(f"'{text}'" for text in TINY)
    for name, text in (("studies", STUDY), ("searches", SEARCH)):
        (place := root / name).mkdir()
        (place / "mine.yaml").write_text(text.replace("OVERRIDES", overrides))
        end = ended(["run", "mine.yaml", "output_dir=out"], place, limit_s=600)
        assert end.kind == "ran", end.text
        assert len(list(place.glob("out/*/mine/*.json"))) == 1
    return root


@pytest.fixture(scope="session", autouse=True)
def composed_before_forks():
    """Compositions, imports and generated rows, which every case would make again."""
    import isotrain.app
    import isotrain.commands.evaluate
    import isotrain.commands.plans
    import isotrain.commands.report
    import isotrain.export.command
    import isotrain.results.below
    import isotrain.runner  # noqa: F401
    from isotrain.config.compose import compose_run

    compose_run(["task=wic", *TINY])
    drawn, seed_0 = DemoSource.rows, DemoSource()
    known = {split: drawn(seed_0, "wic", split) for split in ("train", "dev", "test")}

    def rows(self, name, split):
        if (self.revision, name) != (seed_0.revision, "wic"):
            return drawn(self, name, split)
        return [dict(row) for row in known[split]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DemoSource, "rows", rows)
        yield
