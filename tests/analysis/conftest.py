"""What tests of analyses share: tiny encoders, data sets on disk, configurations."""

from copy import deepcopy

import pytest
import torch
from transformers import GPT2Config, GPT2Model

from isotrain.analysis.types import Subject
from isotrain.config.command import ANALYZE, check_command
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from tests.analysis.offline_isotropy.offline_rows import write_sets
from tests.analysis.runs import tiny


@pytest.fixture(scope="session")
def sets(tmp_path_factory):
    """The folder of `write_sets`."""
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="session")
def encoder():
    """A random BERT that no test changes."""
    return tiny()


@pytest.fixture(scope="session")
def tiny_encoder():
    """`tiny_encoder(width, n_blocks)`: a random BERT in evaluation mode, the same each time."""

    def build(width=16, n_blocks=2, seed=0):
        torch.manual_seed(seed)
        return build_tiny(width, n_blocks, 2).eval()

    return build


@pytest.fixture(scope="session")
def tiny_gpt2(tokenizer):
    """A random GPT-2 of two blocks, with the norm behind its last block, in evaluation mode."""
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2))
    with torch.no_grad():
        model.ln_f.weight.mul_(3.0)
        model.ln_f.bias.add_(1.0)
    return TransformerEncoder(model, tokenizer, "a random GPT-2").eval()


@pytest.fixture
def subject_of(tmp_path):
    """`subject_of(encoder, source, batch_size=…, …)`: rows go to a folder of the test."""

    def build(encoder, source=None, **changes):
        folder = tmp_path / "rows"
        folder.mkdir(exist_ok=True)
        plain = Subject(encoder, source, 0, 4, 64, folder, lambda text: None)
        return plain._replace(**changes)

    return build


@pytest.fixture(scope="session")
def composed_analysis():
    """`composed_analysis("analysis=…", …)`: the configuration, as the command line makes it."""

    def compose(*overrides):
        cfg, mistakes = check_command(overrides, root=ANALYZE)
        assert mistakes == []
        return deepcopy(cfg)

    return compose


@pytest.fixture
def tiny_analysis(tmp_path):
    """Overrides of an analysis of seconds: tiny encoder, demo sentences, a folder of the test."""
    return (
        "encoder=tiny",
        "encoder.width=16",
        "source=demo",
        "threads=1",
        "device=cpu",
        f"output_dir={tmp_path / 'out'}",
        "analysis.max_rows=600",
        "analysis.splits=[dev]",
        "analysis.corpus=rte",
        "analysis.words=[the,garden]",
    )
