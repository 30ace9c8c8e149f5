"""Explain two errors of torch in one sentence, with the fix: out of memory, lost rank."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

MESSAGES = r"out of memory|allocate memory|ALLOC_FAILED"  # of torch: CUDA, CPU, cuDNN and cuBLAS
CONNECTION = r"gloo/transport/\S*\] (.+?)(\. |\n|$)"  # of gloo: file and line, what happened


class MemoryLimitError(RuntimeError):
    """The memory of the device or of the machine is full."""


class LostRankError(RuntimeError):
    """Another process of the run ended, or does not answer."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch says that memory is full."""
    torch_match = isinstance(error, RuntimeError) and re.search(MESSAGES, str(error))
    return isinstance(error, MemoryError) or bool(torch_match)


@contextmanager
def explained() -> Iterator[None]:
    """Replace torch's error by a MemoryLimitError or a LostRankError that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if (replacement := _explain(error)) is None:
            raise
        raise replacement from error


def _explain(error: RuntimeError | MemoryError) -> RuntimeError | None:
    if isinstance(error, MemoryLimitError):
        return None
    if is_out_of_memory(error):
        return MemoryLimitError(
            f"out of memory ({first_line(error)}); free memory and give the same command again, "
            "which resumes from the last checkpoint, or lower data.batch_size, "
            "data.eval_batch_size or task.max_length, which is a run of its own"
        )
    if hit := re.search(CONNECTION, str(error)):
        return LostRankError(
            f"another process of the run ended or does not answer ({hit[1]}); see its own output, "
            "and give the same command again on every node, which resumes from the last checkpoint"
        )
    return None


def first_line(error: BaseException) -> str:
    """The first sentence of an error, or its kind: torch adds statistics and advice."""
    return re.split(r"\.\s|\n", str(error))[0] or type(error).__name__
