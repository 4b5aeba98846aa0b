"""Detection of out-of-memory errors by type, and by message where a type is used for other errors too.

torch has an error type for the allocator of the GPU. Its CPU allocator, CUDA and cuBLAS raise a plain RuntimeError or a
torch.AcceleratorError with fixed messages. The dynamic loader raises an OSError or ImportError with the system's
message. Other errors, such as those of a method's own code, do not count, even if their message mentions memory.
"""

import errno
import os
import sys

_OF_TORCH = (
    "DefaultCPUAllocator: ",
    "std::bad_alloc",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "CUSOLVER_STATUS_ALLOC_FAILED",
)
_OF_SYSTEM = os.strerror(errno.ENOMEM)  # "Cannot allocate memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, torch, CUDA or the system reports exhausted memory.

    Args:
        error: as raised.

    Returns:
        True for exhausted memory of the machine or of a GPU.
    """
    torch = sys.modules.get("torch")  # torch raised no error if it is not imported
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    text = str(error)
    if isinstance(error, (OSError, ImportError)):
        return _OF_SYSTEM.lower() in text.lower()
    if type(error) is RuntimeError or (torch and isinstance(error, torch.AcceleratorError)):
        return _OF_SYSTEM in text or any(words in text for words in _OF_TORCH)
    return False
