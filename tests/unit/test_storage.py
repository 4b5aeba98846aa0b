"""Files are whole or absent, equal values give equal bytes, and nothing pickled is read or written."""

import pickle

import numpy as np
import pytest

from fglbench.errors import StorageError
from fglbench.storage import (
    canonical_json,
    fingerprint,
    hash_arrays,
    read_json,
    read_npz,
    replacing,
    replacing_directory,
    write_json,
    write_npz,
)


def test_fingerprint_depends_on_values_not_on_order():
    assert fingerprint({"a": 1, "b": [1.5, None]}) == fingerprint({"b": [1.5, None], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert len(fingerprint("x", digits=16)) == 16


def test_nan_has_no_canonical_form():
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))


def test_hash_of_arrays_sees_name_type_shape_and_bytes():
    base = hash_arrays({"a": np.arange(4)})
    assert base == hash_arrays({"a": np.arange(8)[::2] // 2})
    assert base != hash_arrays({"b": np.arange(4)})
    assert base != hash_arrays({"a": np.arange(4).astype(np.int32)})
    assert base != hash_arrays({"a": np.arange(4).reshape(2, 2)})
    assert base != hash_arrays({"a": np.array([0, 1, 2, 4])})


def test_equal_values_give_equal_bytes(tmp_path):
    arrays = {"b": np.arange(3.0), "a": np.zeros((0, 2), dtype=np.int64)}
    write_npz(tmp_path / "x.npz", arrays)
    write_npz(tmp_path / "y.npz", dict(reversed(list(arrays.items()))))
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "y.npz").read_bytes()
    loaded = read_npz(tmp_path / "x.npz")
    assert set(loaded) == {"a", "b"}
    np.testing.assert_array_equal(loaded["b"], arrays["b"])
    write_json(tmp_path / "x.json", {"b": 1, "a": [0.1]})
    assert read_json(tmp_path / "x.json") == {"a": [0.1], "b": 1}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "kept.json"
    write_json(path, 1)
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(path) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_folder_leaves_the_old_one_and_no_other(tmp_path):
    folder = tmp_path / "run"
    with replacing_directory(folder) as temporary:
        (temporary / "a").write_text("old")
    with pytest.raises(RuntimeError), replacing_directory(folder) as temporary:
        (temporary / "a").write_text("half")
        raise RuntimeError
    assert (folder / "a").read_text() == "old"
    with replacing_directory(folder) as temporary:
        (temporary / "b").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["b"]
    assert list(tmp_path.iterdir()) == [folder]


def test_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(StorageError, match="'a' contains Python objects"):
        write_npz(tmp_path / "x.npz", {"a": np.array([object()])})
    assert not (tmp_path / "x.npz").exists()
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "evil.npz").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(StorageError, match=r"evil\.npz"):
        read_npz(tmp_path / "evil.npz")


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"garbage"])
def test_damaged_files_are_named(tmp_path, damage):
    write_npz(tmp_path / "x.npz", {"a": np.arange(1000)})
    (tmp_path / "x.npz").write_bytes(damage((tmp_path / "x.npz").read_bytes()))
    with pytest.raises(StorageError, match=r"x\.npz"):
        read_npz(tmp_path / "x.npz")
    with pytest.raises(StorageError, match=r"none\.json"):
        read_json(tmp_path / "none.json")
