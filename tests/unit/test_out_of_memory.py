"""What counts as out of memory is decided by the type of an error, and by its text only for types of the libraries."""

import errno

import numpy as np
import pytest
import torch

from fglbench.runtime.out_of_memory import is_out_of_memory

RAN_OUT = [
    MemoryError(),
    torch.OutOfMemoryError("anything"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    OSError("libtorch_cpu.so: failed to map segment from shared object: Cannot allocate memory"),
    ImportError("libigraph.so: cannot allocate memory in static TLS block"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("unable to mmap 4096 bytes from file <x>: Cannot allocate memory (12)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
]
DID_NOT = [
    ValueError("no mixing matrix: out of memory?"),
    ValueError("CUDA out of memory"),
    KeyError("std::bad_alloc"),
    RuntimeError("the client's replay memory ran out of memory slots"),
    NotImplementedError("Cannot allocate memory"),
    OSError(errno.ENOENT, "Cannot allocate memory"),
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
]


@pytest.mark.parametrize("error", RAN_OUT, ids=repr)
def test_what_says_that_memory_ran_out(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", DID_NOT, ids=repr)
def test_what_does_not(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize("allocate", [lambda size: torch.empty(size), lambda size: np.empty(size)])
def test_what_torch_and_numpy_raise_for_more_than_there_is(allocate):
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        allocate(2**50)
    assert is_out_of_memory(raised.value)
