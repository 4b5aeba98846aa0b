"""Reader of the tensors in a `torch.save` file, without importing or calling anything that the file names.

The file is a zip archive (torch 1.6 and later) with a pickle and the bytes of every storage. The unpickler here
supports tensors, lists, tuples and dictionaries. An object of any other class becomes an `Inert` object, which keeps
its state and does nothing.
"""

import pickle
import zipfile
from typing import IO, Any, ClassVar

import numpy as np


def read_tensors(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Read the tensors of a file by name, which is their key in a dictionary at any depth.

    Args:
        stream: seekable stream of the whole file.

    Returns:
        Read-only arrays with the tensors' shapes and dtypes; tensors that share a storage in the file share it here
        too.

    Raises:
        ValueError, zipfile.BadZipFile, pickle.UnpicklingError: the file is damaged or of another kind, or two tensors
            have the same name. A damaged pickle can also raise almost any other exception.
    """
    with zipfile.ZipFile(stream) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"it is not a file of torch.save: it contains {len(pickles)} pickles instead of one")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("its tensors are not little-endian")
        with archive.open(pickles[0]) as content:
            return _named_tensors(_TensorUnpickler(content, archive, folder).load())


class Inert:
    """Placeholder for an object, or for the result of a call, that is not created."""

    state: Any = None

    def __new__(cls, *_: Any) -> "Inert":
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _TensorUnpickler(pickle.Unpickler):
    _DTYPES: ClassVar[dict[str, str]] = {
        "DoubleStorage": "<f8",
        "FloatStorage": "<f4",
        "HalfStorage": "<f2",
        "LongStorage": "<i8",
        "IntStorage": "<i4",
        "ShortStorage": "<i2",
        "CharStorage": "|i1",
        "ByteStorage": "|u1",
        "BoolStorage": "|b1",
    }

    def __init__(self, stream: IO[bytes], archive: zipfile.ZipFile, folder: str):
        super().__init__(stream)
        self._archive = archive
        self._folder = folder
        self._storages: dict[tuple[str, str], np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return self._DTYPES.get(name, Inert) if module == "torch" else Inert

    def persistent_load(self, pid: Any) -> np.ndarray:
        """Return the storage [elements] that ("storage", dtype, name, device, number of elements) refers to."""
        _, dtype, name, _, elements = pid
        if not isinstance(dtype, str) or not isinstance(name, str):
            raise pickle.UnpicklingError(f"a storage has an unknown kind: {pid!r}")
        if (dtype, name) not in self._storages:
            self._storages[dtype, name] = np.frombuffer(self._archive.read(f"{self._folder}data/{name}"), dtype)
        storage = self._storages[dtype, name]
        if len(storage) != elements:
            raise pickle.UnpicklingError(f"storage {name} contains {len(storage)} elements instead of {elements}")
        return storage


def _tensor(storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> np.ndarray:
    """Return a tensor's part of a storage, after a check that the part lies inside the storage."""
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if min([offset, *size, *stride]) < 0 or (0 not in size and last >= len(storage)):
        raise pickle.UnpicklingError(f"a tensor of size {size} exceeds its storage of {len(storage)} elements")
    if 0 in size:
        return np.empty(size, storage.dtype)
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)


def _named_tensors(content: Any) -> dict[str, np.ndarray]:
    """Collect all tensors that are values of a dictionary.

    Dictionaries, sequences and states are searched at any depth, and may refer to each other.
    """
    tensors: dict[str, np.ndarray] = {}
    pending, seen = [content], set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Inert):
            pending.append(value.state)
        elif isinstance(value, list | tuple):
            pending.extend(value)
        elif isinstance(value, dict):
            entries = {str(key): entry for key, entry in value.items() if isinstance(entry, np.ndarray)}
            if repeated := sorted(set(tensors) & set(entries)):
                raise ValueError(f"it contains two tensors with the name '{repeated[0]}'")
            tensors |= entries
            pending.extend(value.values())
    return tensors
