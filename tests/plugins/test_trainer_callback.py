"""What the callback measures, against hidden states taken in the usual way; and what it leaves."""

from contextlib import nullcontext
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertForSequenceClassification, GPT2Config, GPT2Model
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.scatter_ratio import scatter_ratio
from isotrain.metrics.self_similarity import self_similarity
from isotrain.metrics.suite import suite
from isotrain.plugins.layer_isotropy import LayerIsotropy, backbone_of, recorded
from isotrain.plugins.trainer_callback import IsotropyTrainerCallback
from isotrain.runs.keys import parse_key


class StandIn:
    """What the callback asks of a Trainer."""

    is_fsdp_enabled = is_deepspeed_enabled = False

    def __init__(self, model, tokenizer=None, precision=None):
        self.model, self.processing_class, self.logged = model, tokenizer, []
        cast = torch.autocast("cpu", precision) if precision else nullcontext()
        self.accelerator = SimpleNamespace(autocast=lambda: cast)

    def log(self, values):
        self.logged.append(values)


def state(step=0, is_first=True):
    return SimpleNamespace(global_step=step, is_world_process_zero=is_first)


def values_of(model, tokenizer, rows, precision=None, **options):
    trainer = StandIn(model, tokenizer, precision)
    callback = IsotropyTrainerCallback(trainer, rows, **options)
    callback.on_train_begin(None, state(), None)
    (values,) = trainer.logged
    return values


@pytest.fixture
def clouds(bert, tokenizer, texts):
    """Rows of each layer and view by `output_hidden_states`, pads left out."""
    given = tokenizer(texts, padding=True, return_tensors="pt")
    model = deepcopy(bert).eval()
    with torch.no_grad():
        states = model(**given, output_hidden_states=True).hidden_states
    mask = given["attention_mask"].bool()
    found = {}
    for number, hidden in enumerate(states):
        where = f"layer_{number:02d}"
        found[f"{where}/cls"] = hidden[:, 0]
        found[f"{where}/tokens"] = hidden[mask]
        means = [rows[real].mean(dim=0) for rows, real in zip(hidden, mask, strict=True)]
        found[f"{where}/mean"] = torch.stack(means)
    return found


METRICS = ["isoscore", "mean_cosine", "effective_rank"]


def row_norm(x):
    return x.norm(dim=1).mean()


def test_values_are_those_of_the_hidden_states_without_pads(bert, tokenizer, texts, clouds):
    metrics = [*METRICS, row_norm]  # one of the user's beside names
    values = values_of(bert.train(), tokenizer, texts, metrics=metrics, batch_size=4)
    expected = {}
    for name, rows in clouds.items():
        expected[f"isotropy/n_rows/{name}"] = len(rows)
        expected[f"isotropy/row_norm/{name}"] = row_norm(rows).item()
        for metric, value in suite(rows, METRICS).items():
            expected[f"isotropy/{metric}/{name}"] = value.item()
    assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_tokenised_rows_pairs_wrappers_and_heads_are_the_same_model(bert, tokenizer, texts):
    found = values_of(bert, tokenizer, texts, metrics=["mean_cosine"])
    rows = tokenizer(texts, padding=True)
    rows = [{key: rows[key][i] for key in rows} for i in range(len(texts))]
    head = BertForSequenceClassification(bert.config)
    head.bert.load_state_dict(bert.state_dict(), strict=False)
    for model in (nn.DataParallel(bert), nn.Sequential(bert, nn.Linear(16, 2)), head):
        assert values_of(model, None, rows, metrics=["mean_cosine"]) == pytest.approx(found)
    pairs = values_of(bert, tokenizer, list(zip(texts, texts, strict=True)), views=["tokens"])
    n = found["isotropy/n_rows/layer_00/tokens"]
    assert pairs["isotropy/n_rows/layer_00/tokens"] == 2 * n - len(texts)  # one CLS a pair


def test_a_small_budget_keeps_the_same_rows_whatever_the_batch(bert, tokenizer, texts):
    options = {"metrics": METRICS, "max_rows": 8, "views": ["tokens"]}
    one, other = (values_of(bert, tokenizer, texts, batch_size=b, **options) for b in (1, 6))
    assert one == pytest.approx(other, rel=1e-4)
    assert one["isotropy/n_rows/layer_01/tokens"] == 8


def test_a_sentence_transformer_is_measured_in_its_encoder(sentence_model, texts):
    found = values_of(sentence_model, sentence_model.tokenizer, texts, views=["mean"])
    vectors = sentence_model.encode(texts, convert_to_tensor=True)
    expected = suite(vectors, ["mean_cosine"])["mean_cosine"].item()
    assert found["isotropy/mean_cosine/layer_02/mean"] == pytest.approx(expected, rel=1e-4)


def test_half_precision_is_measured_in_full(bert, tokenizer, texts):
    full = values_of(bert, tokenizer, texts, metrics=["mean_cosine"])
    for model, precision in ((bert, torch.bfloat16), (deepcopy(bert).bfloat16(), None)):
        half = values_of(model, tokenizer, texts, precision, metrics=["mean_cosine"])
        assert half != full
        assert half == pytest.approx(full, abs=0.03)


def test_a_model_is_left_as_it_was(bert, tokenizer, texts):
    bert.train()
    bert.encoder.layer[0].eval()  # a frozen block
    modes = [part.training for part in bert.modules()]
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    values_of(bert, tokenizer, texts)
    assert torch.equal(torch.rand(4), expected)
    assert [part.training for part in bert.modules()] == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in bert.modules())
    assert torch.is_grad_enabled()


def test_each_step_is_measured_once_and_by_the_first_process_alone(bert, tokenizer, texts):
    trainer = StandIn(bert, tokenizer)
    callback = IsotropyTrainerCallback(trainer, texts, views=["cls"])
    going, stopping = (SimpleNamespace(should_training_stop=stop) for stop in (False, True))
    callback.on_train_begin(None, state(0), going)
    callback.on_evaluate(None, state(0), going)  # eval_on_start
    callback.on_step_end(None, state(1), going)
    callback.on_evaluate(None, state(2, is_first=False), going)
    assert len(trainer.logged) == 1
    callback.on_evaluate(None, state(2), going)
    callback.on_evaluate(None, state(2), going)  # a second data set
    callback.on_step_end(None, state(3), stopping)
    callback.on_evaluate(None, state(3), stopping)
    assert len(trainer.logged) == 3


def test_drift_is_from_the_first_step_and_absent_when_resumed(bert, tokenizer, texts):
    trainer = StandIn(bert, tokenizer)
    callback = IsotropyTrainerCallback(trainer, texts, ["cosine_drift"], views=["cls"])
    callback.on_train_begin(None, state(0), None)
    with torch.no_grad():
        bert.encoder.layer[1].output.dense.weight.normal_()
    callback.on_evaluate(None, state(5), None)
    start, later = (
        {k: v for k, v in row.items() if "drift" in k and k.endswith("layer_02/cls")}
        for row in trainer.logged
    )
    assert set(start.values()) == {0.0}
    assert set(later) == set(start)
    assert all(value > 0.01 for value in later.values())
    resumed = IsotropyTrainerCallback(trainer, texts, ["cosine_drift"], views=["cls"])
    resumed.on_train_begin(None, state(5), None)
    assert len(trainer.logged) == 2
    resumed.on_evaluate(None, state(6), None)
    assert not any("drift" in key for key in trainer.logged[-1])


def test_metrics_get_the_words_sentences_or_labels_that_they_need(bert, tokenizer, texts, clouds):
    ids, labels = tokenizer(texts)["input_ids"], [0, 1] * 3
    words = [word for sentence in ids for word in sentence]
    sentences = [number for number, sentence in enumerate(ids) for _ in sentence]
    metrics = [self_similarity, intra_sentence_similarity, scatter_ratio]
    values = values_of(bert, tokenizer, texts, metrics=metrics, labels=labels)
    for metric, given, cloud in zip(
        metrics, (words, sentences, labels), ("tokens", "tokens", "cls"), strict=True
    ):
        expected = metric(clouds[f"layer_01/{cloud}"], torch.tensor(given))["value"].item()
        found = values[f"isotropy/{metric.__name__}_value/layer_01/{cloud}"]
        assert found == pytest.approx(expected, rel=1e-4)


def test_a_causal_model_is_recorded_block_by_block():
    model = GPT2Model(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=3, n_head=2))
    ids = torch.arange(6)[None]
    model.eval()
    with torch.no_grad(), recorded(backbone_of(model)) as states:
        last = model(ids).last_hidden_state
    assert len(states) == 4
    assert torch.allclose(model.ln_f(states[3]), last)  # the final norm is no block


def test_blocks_compiled_in_place_are_measured_as_they_are(bert, tokenizer, texts):
    expected = LayerIsotropy(bert, texts, tokenizer)()
    bert.eval()
    bert.encoder.compile(backend="eager")
    with torch.no_grad():
        bert(**tokenizer(texts, padding=True, return_tensors="pt"))  # later hooks never run
    call = bert.encoder._compiled_call_impl
    assert LayerIsotropy(bert, texts, tokenizer)() == expected
    assert bert.encoder._compiled_call_impl is call


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fnet", "depend on the pads of its batch in FNetModel"),
        ("xlnet", "hidden state 0 of XLNetModel is not what its blocks show"),
    ],
)
def test_states_that_are_not_those_of_transformers_are_rejected(name, said, tokenizer, texts):
    config = CONFIG_MAPPING[name](
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=3, num_attention_heads=1
    )
    with pytest.raises(ValueError, match=said):
        LayerIsotropy(AutoModel.from_config(config), texts, tokenizer)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("one text", {}, "list of texts"),
        (None, {"views": ["first"]}, "views are some of"),
        (None, {"views": []}, "views are some of"),
        (None, {"metrics": ["scatter_ratio"]}, "labels"),
        (None, {"metrics": ["alignment"]}, "positives"),
        (None, {"metrics": ["isoscor"]}, "did you mean isoscore"),
        (None, {"labels": [1]}, "one a row"),
    ],
)
def test_what_cannot_be_measured_is_rejected(bert, tokenizer, texts, rows, options, said):
    rows = texts if rows is None else rows
    with pytest.raises(ValueError, match=said):
        IsotropyTrainerCallback(StandIn(bert, tokenizer), rows, **options)


def test_sharded_weights_and_models_without_transformers_are_rejected(bert, tokenizer, texts):
    trainer = StandIn(bert, tokenizer)
    trainer.is_fsdp_enabled = True
    with pytest.raises(ValueError, match="FSDP"):
        IsotropyTrainerCallback(trainer, texts)
    with pytest.raises(ValueError, match="PreTrainedModel"):
        IsotropyTrainerCallback(StandIn(nn.Linear(2, 2), tokenizer), texts)


@pytest.mark.filterwarnings("default")  # those of the Trainer are not ours
def test_training_is_the_same_bit_by_bit_with_the_callback(bert, tokenizer, texts, tmp_path):
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    rows = Dataset.from_dict({**tokenizer(texts), "labels": [0, 1] * 3})

    def weights(with_callback):
        torch.manual_seed(0)
        model = BertForSequenceClassification(bert.config)  # with dropout
        args = TrainingArguments(str(tmp_path), max_steps=3, report_to=[], save_strategy="no")
        trainer = Trainer(model, args, train_dataset=rows, processing_class=tokenizer)
        if with_callback:
            trainer.add_callback(IsotropyTrainerCallback(trainer, texts, views=["cls"]))
        trainer.train()
        steps = [row["step"] for row in trainer.state.log_history if any(map(parse_key, row))]
        return model.state_dict(), steps

    (plain, _), (watched, steps) = weights(False), weights(True)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    assert steps == [0, 3]
