"""Whether an error says that memory ran out. The type decides; the text only where a type serves for other errors too.

torch has a type for a card's allocator. Its CPU allocator, CUDA and cuBLAS report by a plain RuntimeError or a
torch.AcceleratorError with fixed words, the dynamic loader by an OSError or ImportError with the system's words.
An error of a method's own code has none of these, even where it speaks of memory.
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
    """Whether an error of Python, torch, CUDA or the system says that memory ran out."""
    torch = sys.modules.get("torch")  # where it is not imported, no error is of it
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
