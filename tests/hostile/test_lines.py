"""Command lines that once went wrong, each in a fork of this process with all that it imports."""

import re

import pytest

from tests.hostile.harness import TINY, ended, judged

pytestmark = pytest.mark.campaign
RUN = ("train", "task=wic", *TINY, "output_dir=out")
REJECTED = (
    *(["+trainer.check_val_every_n_epoch=0"]),
    *(["+optimizer.betas=[0.9]"], ["isotropy=cluster_pca", "isotropy.queue_rows=1000000000000"]),
    *(["--help=1"], ["output_dir=/proc/x"], ["output_dir=" + "a/" * 2500]),
    *(["output_dir=" + "a" * 5000],),
    *(["-m", "seed=range(0,1,0)"], ["-m", "--jobs", "1", "seed=range(0,3)"]),
    *(["+trainer.deterministic=banana"], ["+trainer.max_time=banana"], ["trainer.max_steps=-7"]),
    *(["init_from="], ["+trainer.profiler=banana"]),
    *(["+trainer.limit_train_batches=-1"], ["+trainer.limit_train_batches=7.5"]),
    *(["+trainer.detect_anomaly=maybe"], ["+trainer.benchmark=maybe"], ["+optimizer.eps=nan"]),
    *(["+trainer.gradient_clip_algorithm=x"], ["trainer.gradient_clip_val=inf"]),
    *(["+trainer.inference_mode=7"], ["+trainer.num_nodes=100000"], ["+optimizer.eps=-1"]),
    *(["trainer.max_epochs=-3"], ["trainer.devices=[0,0]"]),
    *(["+trainer.barebones=true"], ["+trainer.fast_dev_run=-2"], ["optimizer.lr=inf"]),
    *(["encoder.width=1000000000"], ["encoder.width=0"]),
    *(["encoder.n_blocks=100000000"], ["encoder.n_heads=3"], ["data.batch_size=" + "9" * 400]),
    *(["seed=\x1b]0;title\x07"], ["sede\x1b[31m=1"], ["task=\udcff"], ["task=wic\n\x01"]),
)
OF_LIBRARIES = (  # each is to be rejected with this error, which is not ours
    (["--experimental-rerun", "x.pickle"], "ValueError: File x.pickle does not exist!"),
    (
        ["optimizer.lr=1e300"],
        "RuntimeError: value cannot be converted to type float without overflow",
    ),
    (
        ["trainer.val_check_interval=1e9"],
        "ValueError:  `val_check_interval` (1000000000) must be less than or equal to the number",
    ),
)
ACCEPTED = (  # each is to end, and to say this
    (["output_dir="], "\nwic/none-HASH: "),  # here, and the same run as elsewhere
    (["cache_dir="], "\nout/wic/none-HASH: "),  # none: it changes no number
    (["+trainer.min_epochs=-5"], "pooled             8   0.0323 → 0.0328"),  # no effect
    (["+trainer.min_steps=-1"], "pooled             8   0.0323 → 0.0328"),
    (["+trainer.limit_train_batches=0"], "pooled             8     0.0323"),  # no step
    (["optimizer.weight_decay=1e30", "trainer.max_steps=1"], "The run is degenerate"),
)
NAMED = (
    *((words, "", "") for words in REJECTED),
    *((words, error, "") for words, error in OF_LIBRARIES),
    *((words, "", told) for words, told in ACCEPTED),
)


def _ended(command, root):
    (place := root / "place").mkdir()
    # speed.compile takes a minute in an empty home
    own = {"HOME": str(root), "ISOTRAIN_DATA_DIR": "", "TORCHDYNAMO_DISABLE": "1"}
    return ended(command, place, own)


@pytest.fixture(scope="module")
def plain_hash(tmp_path_factory):
    """The hash of the run without further words."""
    end = _ended([*RUN], tmp_path_factory.mktemp("plain"))
    return re.match(r"out/wic/none-(\w+): ", end.text)[1]


@pytest.mark.parametrize(("words", "of_library", "told"), NAMED)
def test_a_command_line(words, of_library, told, tmp_path, record_property, plain_hash):
    command, why = [*RUN, *words], "" if of_library or told else "to be refused"
    end = judged(record_property, command, _ended(command, tmp_path), why, of_library)
    assert told.replace("HASH", plain_hash) in f"\n{end.text}"
    assert end.kind == "ran" or not told
