"""A simulated GPU for tests on machines without one: operations that CUDA refuses fail on the CPU as well.

Inside `pretend_card()`, "cuda" names a second device for tensors. Its tensors are CPU tensors whose memory is marked as
GPU memory. Operations are therefore bitwise those of the CPU, and a view or gradient is on the device of its source:

    - `tensor.device` and `is_cuda` report the device. `to`, `cpu` and `cuda` copy to it, and functions with `device=`
      create tensors on it. torch.cuda reports one GPU. `torch.Generator("cuda")` draws the same numbers as a CPU
      generator.
    - Every operation of ATen, including those of backward passes, refuses tensors of both devices at once. As on CUDA,
      a GPU tensor accepts CPU indices (`x[rows]`, but not `index_select`, `index_add_`, ...), `copy_` accepts all
      tensors, and elementwise operations accept zero-dimensional CPU tensors.
    - Tensors refuse generators of the other device. GPU tensors refuse `numpy()`, and with it all NumPy functions.
    - Fused optimisers refuse lists of tensors that differ in dtype, shape or memory layout.

The simulation does not cover: missing CUDA kernels for an operation, dtype, index or stride (sparse products use
cuSPARSE and fused optimisers have kernels of their own; here the CPU kernels run); errors inside kernels, such as an
index out of range; numerical differences from the order of sums, TF32 and random streams; nondeterministic algorithms;
streams, memory and time. Zeros that autograd creates for unused outputs count as CPU tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CARD = torch.device("cuda:0")
CPU = torch.device("cpu")

_COPIES = {"aten::copy_", "aten::_to_copy"}
_INDEXED = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_TAKE_SCALARS = {"aten::fill_", "aten::masked_fill", "aten::masked_fill_", "aten::where", *_INDEXED}
_FUSED = {"aten::_fused_adam_": 4, "aten::_fused_sgd_": 2}  # number of tensor lists that must match


class _Generator(torch.Generator):
    """A generator of either device; both draw on the CPU."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        return super().__new__(cls)

    def __init__(self, device: Any = "cpu"):
        if _named(device) == CARD:
            _generators.add(self)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CARD if self in _generators else CPU


_generators: WeakSet[_Generator] = WeakSet()  # generators of the simulated GPU


def _memory(tensor: Tensor) -> list[torch.UntypedStorage]:
    """Return the storages of a tensor's values and, for a sparse tensor, indices; all views share these objects."""
    if tensor.layout is torch.strided:
        return [tensor.untyped_storage()]
    parts = (
        (tensor._indices(), tensor._values())
        if tensor.layout is torch.sparse_coo
        else (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    )
    return [part.untyped_storage() for part in parts]


def on_card(tensor: Tensor) -> bool:
    """Return whether a tensor is on the simulated GPU."""
    return any(getattr(memory, "_on_card", False) for memory in _memory(tensor))


def _place(tensor: Tensor, device: torch.device) -> Tensor:
    """Mark the device of a tensor whose memory no other tensor shares."""
    for memory in _memory(tensor):
        memory._on_card = device.type == "cuda"  # type: ignore[attr-defined]
    return tensor


class _Moved(torch.autograd.Function):
    """A copy of a tensor on the other device; its gradient returns to the first device."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, device: torch.device) -> Tensor:
        ctx.before = _device_of(tensor)
        return _place(tensor.clone(), device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _moved(gradients[0], ctx.before), None


def _device_of(tensor: Tensor) -> torch.device:
    return CARD if on_card(tensor) else CPU


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor if device.type == _device_of(tensor).type else _Moved.apply(tensor, device)


class _Rules(TorchDispatchMode):
    """Refuse what CUDA refuses, and mark the device of every result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there = [tensor for tensor in tensors if on_card(tensor)]
        _check_generator(func, kwargs.get("generator"), bool(there))
        if not there:
            return func(*args, **kwargs)
        name = func._schema.name
        if name not in _COPIES:
            _check_places(func, name, args, tensors)
        if name in _FUSED:
            _check_fused(name, args)
        given = {id(memory) for tensor in tensors for memory in _memory(tensor)}
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and not any(id(memory) in given for memory in _memory(leaf)):
                _place(leaf, CARD)
        return result


def _check_generator(func: Any, generator: torch.Generator | None, card: bool) -> None:
    if generator is None:
        return
    # Dispatch passes another Python object for the same generator.
    if card != any(generator._cdata == own._cdata for own in _generators):  # type: ignore[attr-defined]
        expected, found = ("cuda", "cpu") if card else ("cpu", "cuda")
        raise RuntimeError(f"{func}: expected a '{expected}' device type for generator but found '{found}'")


def _check_places(func: Any, name: str, args: Any, tensors: list[Tensor]) -> None:
    strangers = [tensor for tensor in tensors if not on_card(tensor)]
    if name in _INDEXED and on_card(args[0]):
        indices = {id(index) for index in args[1] if index is not None}
        strangers = [tensor for tensor in strangers if id(tensor) not in indices]
    if name in _TAKE_SCALARS or torch.Tag.pointwise in func.tags:
        strangers = [tensor for tensor in strangers if tensor.dim()]
    if strangers:
        shapes = [(str(_device_of(tensor)), tuple(tensor.shape)) for tensor in tensors]
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, but found {shapes}")


def _check_fused(name: str, args: Any) -> None:
    """Check lists of tensors as `check_fast_path_restrictions` of torch's ForeachUtils.h does."""
    for matching in zip(*(own for own in args[: _FUSED[name]] if own), strict=True):
        first = matching[0]
        for tensor in matching:
            same = tensor.dtype == first.dtype and tensor.shape == first.shape
            strides = zip(first.shape, first.stride(), tensor.stride(), strict=True)
            if not same or not _dense(tensor) or any(size != 1 and one != other for size, one, other in strides):
                found = [(own.dtype, tuple(own.shape), own.stride()) for own in matching]
                raise RuntimeError(f"{name}: tensors must have same dtype, device, and layout, but found {found}")


def _dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills its part of memory without gaps and overlaps, in any order of dimensions."""
    return tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True)).is_contiguous()


def _named(device: Any) -> torch.device:
    """Return the device for a value that `torch.device` accepts; a number names a GPU."""
    return CARD if isinstance(device, int) or torch.device(device).type == "cuda" else CPU


def _factory(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        if device is None:
            return original(*args, **kwargs)
        wants = kwargs.pop("requires_grad", False)
        return _place(original(*args, **kwargs, device="cpu").detach(), _named(device)).requires_grad_(wants)

    return make


def _to(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def to(tensor: Tensor, *args: Any, copy: bool = False, **kwargs: Any) -> Tensor:
        other = args[0] if args else kwargs.pop("other", None)
        if isinstance(other, Tensor):
            device, dtype, form = _device_of(other), other.dtype, kwargs.get("memory_format")
        else:
            device, dtype, _, form = torch._C._nn._parse_to(*args, **kwargs)
        options = {} if form is None else {"memory_format": form}
        cast = original(tensor, dtype or tensor.dtype, **options)
        moved = cast if device is None else _moved(cast, _named(device))
        return moved.clone() if copy and moved is tensor else moved

    return to


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(tensor: Tensor, *, force: bool = False) -> Any:
        if on_card(tensor) and not force:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
                "first."
            )
        return original(tensor, force=force)

    return numpy


def _as_tensor(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def as_tensor(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        made = original(data, **kwargs)
        return made if device is None else made.to(device)

    return as_tensor


@contextmanager
def pretend_card() -> Iterator[torch.device]:
    """Give torch one simulated GPU inside the context; yield its device."""
    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: "pretended card",
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
    }
    with ExitStack() as stack:

        def replace(owner: Any, name: str, by: Any) -> None:
            stack.enter_context(patch.object(owner, name, by))

        for name, function in cuda.items():
            replace(torch.cuda, name, function)
        constructors = [function.__name__ for function in _device_constructors()]
        makers = {name for name in constructors if hasattr(torch, name)} - {"as_tensor", "asarray"}
        makers |= {name for name in dir(torch) if name.endswith("_like")}
        for owner, names in ((torch, makers), (Tensor, {name for name in dir(Tensor) if name.startswith("new_")})):
            for name in names:
                replace(owner, name, _factory(getattr(owner, name)))
        for name in ("as_tensor", "asarray"):
            replace(torch, name, _as_tensor(getattr(torch, name)))
        replace(torch, "Generator", _Generator)
        replace(Tensor, "to", _to(Tensor.to))
        replace(Tensor, "cpu", lambda tensor: _moved(tensor, CPU))
        replace(Tensor, "cuda", lambda tensor, device=None: _moved(tensor, CARD))
        replace(Tensor, "numpy", _numpy(Tensor.numpy))
        replace(Tensor, "device", property(_device_of))
        replace(Tensor, "is_cuda", property(on_card))
        with _Rules():
            yield CARD
