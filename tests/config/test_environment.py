"""A hub out of reach is told in one line, after one request."""

import socket
from contextlib import closing
from threading import Thread

import pytest

from isotrain.encoders.tiny import build_tiny
from tests.processes import printed_by

COMMIT = "1" * 40
CODE = """
from isotrain.encoders.huggingface import load_encoder, load_tokenizer
from isotrain.tasks.data.sources import HubSource
from isotrain.tasks.presets import preset
from huggingface_hub import constants

for read in (
    lambda: load_encoder("some/encoder"),
    lambda: load_tokenizer("some/encoder", "0" * 40),
    lambda: HubSource().read(preset("rte").data_set, "dev"),
):
    try:
        read()
    except OSError as error:
        print(error)
print(load_encoder("some/fetched").source_id, constants.HF_HUB_OFFLINE)
"""


@pytest.mark.parametrize("answers", ["never", "no connection"])
def test_a_hub_out_of_reach_is_asked_once(tmp_path, answers):
    asked = []

    def accept():
        while True:
            try:
                asked.append(server.accept()[0])
            except OSError:  # closed
                return

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        hub = f"http://127.0.0.1:{server.getsockname()[1]}"
        if answers == "never":
            Thread(target=accept, daemon=True).start()
        else:
            server.close()
        cache = tmp_path / "hub" / "models--some--fetched"
        tiny = build_tiny(width=8, n_blocks=1, n_heads=1)
        for part in (tiny.model, tiny.tokenizer):
            part.save_pretrained(cache / "snapshots" / COMMIT)
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text(COMMIT)
        own = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
        *lines, fetched = printed_by("-c", CODE, **own).splitlines()
    for connection in asked:
        connection.close()
    why = "timed out" if answers == "never" else "[Errno 111] Connection refused"
    assert [line.partition("; ")[0] for line in lines] == [
        *["'some/encoder' is neither on disk nor reachable on the hub"] * 2,
        "nyu-mll/glue is neither in the cache nor reachable on the hub",
    ]
    assert all(f"What went wrong: {hub} does not answer ({why})" in line for line in lines)
    assert fetched == "some/fetched False"
    assert len(asked) == (answers == "never")
