"""Tensors are read as torch.save wrote them, and nothing else in a file is made or run."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from fglbench.datasets.torch_file import read_tensors

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def saved(content: Any) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(content, stream)
    stream.seek(0)
    return stream


def rewritten(content: Any, **entries: bytes) -> io.BytesIO:
    """What torch.save writes, with other entries."""
    stream = io.BytesIO()
    with zipfile.ZipFile(saved(content)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in old.namelist():
            new.writestr(name, entries.get(Path(name).name.replace(".", "_"), old.read(name)))
    stream.seek(0)
    return stream


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_is_read(dtype: torch.dtype) -> None:
    whole = (torch.arange(24).reshape(2, 3, 4) % 5).to(dtype)
    content = {"whole": whole, "number": whole[1, 2, 3], "empty": whole[:0], "turned": whole.permute(2, 0, 1)}
    content |= {"part": whole[1:, ::2, 1:3], "row": whole[0, 0].expand(3, 4)}
    found = read_tensors(saved(content))
    assert set(found) == set(content)
    for name, tensor in content.items():
        assert found[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(found[name], tensor.numpy())
        assert found[name].strides == tensor.numpy().strides or not found[name].size


def test_tensors_that_share_a_storage_share_it() -> None:
    whole = torch.arange(10)
    found = read_tensors(saved({"whole": whole, "part": whole[3:7]}))
    assert np.shares_memory(found["whole"], found["part"])
    assert not found["whole"].flags.writeable


def test_graphs_of_torch_geometric_are_read_without_it() -> None:
    graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    graph.names = np.array(["a", "b", "c"])  # of a class that is not read
    found = read_tensors(saved((graph, None)))
    assert set(found) == {"x", "edge_index"}
    np.testing.assert_array_equal(found["edge_index"], [[0, 1], [1, 2]])


class Attack:
    """A pickle that makes a folder when an ordinary unpickler reads it."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_nothing_that_a_file_names_is_called(tmp_path: Path) -> None:
    target = tmp_path / "was run"
    content = {"attack": Attack(target), "x": torch.ones(2)}
    torch.load(saved(content), weights_only=False)
    assert target.is_dir()  # the attack works against an ordinary unpickler
    target.rmdir()
    assert list(read_tensors(saved(content))) == ["x"]
    assert not target.exists()


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (4,), (1,)), (2, (2,), (1,)), (-1, (2,), (1,)), (0, (2, 2), (2, 1)), (2, (3,), (-1,))],
)
def test_no_tensor_reaches_out_of_its_storage(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    class Forged:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (torch.ones(3).untyped_storage(), offset, size, stride, False, {})

    class Writer(pickle.Pickler):
        def persistent_id(self, thing: Any) -> Any:
            storage = isinstance(thing, torch.UntypedStorage)
            return ("storage", torch.FloatStorage, "0", "cpu", 3) if storage else None

    forged = io.BytesIO()
    Writer(forged, protocol=2).dump({"x": Forged()})
    with pytest.raises(pickle.UnpicklingError, match="exceeds its storage"):
        read_tensors(rewritten({"x": torch.ones(3)}, data_pkl=forged.getvalue()))


def test_what_is_no_such_file_is_refused() -> None:
    with pytest.raises(zipfile.BadZipFile):
        read_tensors(io.BytesIO(pickle.dumps({})))
    with pytest.raises(ValueError, match="0 pickles"):
        stream = io.BytesIO()
        zipfile.ZipFile(stream, "w").close()
        read_tensors(stream)
    with pytest.raises(ValueError, match="not little-endian"):
        read_tensors(rewritten({"x": torch.ones(3)}, byteorder=b"big"))
    with pytest.raises(pickle.UnpicklingError, match="contains 1 elements instead of 3"):
        read_tensors(rewritten({"x": torch.ones(3)}, **{"0": bytes(4)}))
    with pytest.raises(pickle.UnpicklingError, match="unknown kind"):
        read_tensors(saved({"x": torch.ones(3, dtype=torch.bfloat16)}))
    with pytest.raises(ValueError, match="two tensors with the name 'x'"):
        read_tensors(saved([{"x": torch.ones(3)}, {"x": torch.ones(2)}]))
