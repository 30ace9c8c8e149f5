"""Count where Python waits for numbers of a tensor, which on a GPU empties its queue of work.

On a CPU nothing waits; counted are the calls that would. `one_hot` with a given number of classes
looks at its input on a CPU alone, and is left out.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = {"_local_scalar_dense", "equal", "nonzero", "bincount", "_unique2", "masked_select"}
WAITS |= {"_linalg_eigh"}  # asks whether it converged


class _Watch(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found, self.is_off = found, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = [a for a in (args[1] if name == "index" else []) if a is not None]
        if name in WAITS and not self.is_off:
            self.found[name] += 1
        elif any(mask.dtype == torch.bool for mask in masks):
            self.found["index by a mask"] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def host_syncs() -> Iterator[Counter[str]]:
    """The waits inside the block, by kind."""
    found: Counter[str] = Counter()
    watch = _Watch(found)
    tolist, one_hot, cpu = torch.Tensor.tolist, torch.nn.functional.one_hot, torch.Tensor.cpu

    def counted_tolist(self: torch.Tensor) -> Any:
        found["tolist"] += 1
        return tolist(self)

    def counted_cpu(self: torch.Tensor, *args: Any) -> torch.Tensor:
        found["cpu"] += 1
        return cpu(self, *args)

    def free_one_hot(*args: Any) -> torch.Tensor:
        watch.is_off = True
        try:
            return one_hot(*args)
        finally:
            watch.is_off = False

    torch.Tensor.tolist, torch.Tensor.cpu = counted_tolist, counted_cpu  # type: ignore[method-assign]
    torch.nn.functional.one_hot = free_one_hot  # type: ignore[assignment]
    try:
        with watch:
            yield found
    finally:
        torch.Tensor.tolist, torch.Tensor.cpu = tolist, cpu  # type: ignore[method-assign]
        torch.nn.functional.one_hot = one_hot  # type: ignore[assignment]
