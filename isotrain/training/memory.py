"""Out of memory: one sentence that says what to lower."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

MESSAGES = r"out of memory|allocate memory|ALLOC_FAILED"  # of torch: CUDA, CPU, cuDNN and cuBLAS


class MemoryLimitError(RuntimeError):
    """The memory of the device or of the machine is full."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch says that memory is full."""
    of_torch = isinstance(error, RuntimeError) and re.search(MESSAGES, str(error))
    return isinstance(error, MemoryError) or bool(of_torch)


@contextmanager
def memory_failures() -> Iterator[None]:
    """A MemoryLimitError, with what to do, where memory is full."""
    try:
        yield
    except MemoryLimitError:
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryLimitError(
            f"out of memory ({first_line(error)}); free memory and give the same command again, "
            "which resumes from the last checkpoint, or lower data.batch_size "
            "(trainer.accumulate_grad_batches makes up for it), data.eval_batch_size or "
            "task.max_length, which is a run of its own"
        ) from error


def first_line(error: BaseException) -> str:
    """The first sentence of an error, or its kind: torch adds statistics and advice."""
    return re.split(r"\.\s|\n", str(error))[0] or type(error).__name__
