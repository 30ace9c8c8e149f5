"""No secret survives in what is written, and ordinary words do."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.runs.secrets import HIDDEN, SHORTEST, redacted

SECRET = "Zq7-secret-Value/9+x=="
TEXT = st.text(alphabet=string.ascii_lowercase + " _-/:.", max_size=12)
PROFILE = settings(max_examples=40)


def nested(leaf):
    """Content of any nesting around a leaf."""
    others = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner | others, min_size=1, max_size=3)
            | st.tuples(others, inner)
            | st.dictionaries(TEXT, inner, min_size=1, max_size=3)
        ),
        max_leaves=4,
    )


@pytest.fixture(autouse=True)
def secret_of_the_environment(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)


@given(nested(st.builds("{}{}{}".format, TEXT, st.just(SECRET), TEXT)))
@PROFILE
def test_nothing_of_a_secret_variable_survives_in_any_nesting(content):
    found = json.dumps(redacted(content))
    assert SECRET not in found
    assert found.count(HIDDEN) == json.dumps(content).count(SECRET)


@given(st.data(), st.text(alphabet=string.ascii_letters + string.digits, min_size=20, max_size=40))
@PROFILE
def test_hub_tokens_are_hidden_wherever_they_stand(data, letters):
    token = f"hf_{letters}"
    for text in (token, f"token={token}", f"'{token}'", f"a {token} b", f"https://x/?t={token}"):
        content = data.draw(nested(st.just(text)))
        assert letters not in json.dumps(redacted(content))


@pytest.mark.parametrize("prefix", ["wandb_v1_", "wandb_v2_", "ghp_", "gho_", "github_pat_"])
def test_other_tokens_of_known_forms_are_hidden(prefix):
    letters = "aB3_xY9z" * 4
    assert redacted(f"a {prefix}{letters} b") == f"a {HIDDEN} b"
    assert redacted(f"{prefix}short") == f"{prefix}short"


@given(
    st.text(alphabet=string.ascii_letters, min_size=1, max_size=10),
    st.text(alphabet=string.ascii_letters + string.digits + "!$%", min_size=4, max_size=20),
)
@PROFILE
def test_the_user_and_password_of_an_address_are_hidden(user, password):
    address = f"see https://{user}:{password}@example.org:8080/path and more"
    assert redacted(address) == f"see https://{HIDDEN}@example.org:8080/path and more"


NAMES = [
    *("api_key", "apikey", "API_KEY", "wandb_api_key", "WANDB_API_KEY", "password", "db_password"),
    *("passwd", "secret", "client_secret", "credential", "credentials", "token", "TOKEN"),
    *("access_token", "auth_token", "api_token", "hf_token", "hub_token", "bearer_token"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_value_of_a_secret_key_is_hidden(name):
    for value in ("x", "hunter2", "a b c"):
        assert redacted({"a": [{name: value, "b": value}]}) == {"a": [{name: HIDDEN, "b": value}]}


@pytest.mark.parametrize(
    "value", [12345678, "a1", ["hunter2"], ("hunter2",), {"inner": "hunter2"}, [["hunter2", 1]]]
)
def test_a_secret_key_hides_whatever_it_holds(value):
    assert "hunter2" not in json.dumps(redacted({"password": value}))
    assert redacted({"password": value})["password"] != value


@pytest.mark.parametrize("value", [3, 0.25, -1.5])
def test_a_setting_of_a_token_is_no_secret(value):
    """Two weights of a class that is named `auth` are two configurations."""
    for name in ("auth", "reset_password", "cost_per_token"):
        assert redacted({name: value}) == {name: value}
        assert redacted(f"task.class_weights.{name}={value}").endswith(f"={value}")
    assert redacted("logger.x.password=123456").endswith(HIDDEN)


KEYS = [
    *("n_memory_tokens", "pad_token", "cls_token", "sep_token", "mask_token", "n_tokens"),
    *("token_type_ids", "tokenizer", "max_tokens", "tokens", "token_rows", "secretary", "key"),
    *("keys", "passes", "n_passwords_seen", "monkey", "headline", "site", "tokens_per_second"),
]


@pytest.mark.parametrize("key", KEYS)
def test_ordinary_keys_keep_their_values(key):
    for value in ("tokens", "[PAD]", 3, None, 0.5, ["tokens", "pooled"]):
        assert redacted({key: value}) == {key: value}


@given(nested(TEXT))
@PROFILE
def test_content_without_secrets_is_left_as_it_is(content):
    def with_lists(node):
        if isinstance(node, dict):
            return {key: with_lists(value) for key, value in node.items()}
        return [with_lists(v) for v in node] if isinstance(node, list | tuple) else node

    assert redacted(content) == with_lists(content)


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        *(("WANDB_API_KEY", True), ("MY_APIKEY", True), ("HF_TOKEN", True), ("GITHUB_TOKEN", True)),
        *(("AWS_SECRET_ACCESS_KEY", True), ("DB_PASSWORD", True), ("db_password", True)),
        *(("GOOGLE_CREDENTIALS", True), ("HOME_OF_MINE", False), ("ISOTRAIN_DATA_DIR", False)),
    ],
)
def test_which_variables_hold_secrets(monkeypatch, name, is_hidden):
    monkeypatch.setenv(name, "a-long-enough-value")
    assert (redacted("x a-long-enough-value y") == f"x {HIDDEN} y") == is_hidden


def test_a_short_value_of_a_secret_variable_hides_no_words(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "none")
    monkeypatch.setenv("OTHER_TOKEN", "")
    assert redacted("isotropy=none") == "isotropy=none"
    monkeypatch.setenv("SOME_TOKEN", "x" * SHORTEST)
    assert redacted("a" + "x" * SHORTEST) == f"a{HIDDEN}"


def test_a_secret_that_begins_like_another_is_hidden_whole(monkeypatch):
    """The shorter one is replaced first, and the rest of the longer one stays."""
    monkeypatch.setenv("AAA_TOKEN", "begin-alike")
    monkeypatch.setenv("BBB_TOKEN", "begin-alike-and-go-on")
    assert "go-on" not in redacted("the token is begin-alike-and-go-on")


def test_every_part_of_a_password_with_an_at_sign_is_hidden():
    """What follows the first @ stays."""
    assert "word" not in redacted("postgres://me:pass@word@host/db")
