"""Digests of what a configuration names."""

import hashlib

from isotrain.analysis.run import given_files


def digest(content):
    return hashlib.sha256(content).hexdigest()[:12]


def test_files_at_any_depth_and_the_files_of_a_folder(tmp_path):
    vectors, folder = tmp_path / "v.npy", tmp_path / "model"
    vectors.write_bytes(b"rows")
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(b"w")
    (folder / "deep" / "other").write_bytes(b"o")
    node = [{"vectors": str(vectors), "n": 3, "words": ["dog", None]}, {"name": str(folder)}]
    assert given_files(node) == {
        str(vectors): digest(b"rows"),
        str(folder / "weights"): digest(b"w"),
    }


def test_what_names_no_file(tmp_path):
    assert given_files(["", "x" * 5000, "a\0b", str(tmp_path / "none"), 3, None]) == {}
