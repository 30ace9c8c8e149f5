"""All-gather of embeddings with a gradient summed over ranks. N embeddings, D width."""

from typing import Any

import torch
from torch import Tensor, distributed

from isotrain.console import process_rank


def n_processes() -> int:
    """World size; 1 outside distributed training."""
    is_running = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_running else 1


def sum_over_processes(value: Tensor) -> Tensor:
    """The sum of a detached tensor over all processes."""
    if n_processes() == 1:
        return value
    total = value.detach().clone().to(_device(value))
    distributed.all_reduce(total)
    return total.to(value.device)


def of_all_processes(value: Any) -> list[Any]:
    """The `value` of every process, in rank order; any picklable object."""
    values = [value] * n_processes()
    if len(values) > 1:
        distributed.all_gather_object(values, value)
    return values


def all_gather(x_ND: Tensor) -> Tensor:
    """The embeddings of all processes in rank order.

    N may differ between processes; `x` may have any trailing shape. Gradients are summed over
    processes, so that a loss which every process computes from all embeddings, averaged over
    processes, has exactly the gradient of one process.

    >>> all_gather(torch.ones(2, 1)).shape
    torch.Size([2, 1])
    """
    return _gathered(x_ND, _sizes(x_ND))


def order_keys(n_examples: int, n_sequences: int, n_positions: int) -> Tensor:
    """Keys `[Q·B, T]` that sort gathered embeddings into single-process order.

    Example j of rank r is example j·(world size) + r of the whole batch. Keys sort by sequence,
    then example, then position.

    >>> order_keys(2, 1, 2).argsort(dim=1).tolist()
    [[0, 1], [0, 1]]
    """
    example_B = torch.arange(n_examples) * n_processes() + process_rank()
    sequence_Q = torch.arange(n_sequences) << 52
    key_QBT = (
        sequence_Q[:, None, None]
        + (example_B << 20)[None, :, None]
        + torch.arange(n_positions)[None, None, :]
    )
    return key_QBT.reshape(n_sequences * n_examples, n_positions)


class WholeBatch:
    """The single-process order of all embeddings, exchanged once for many tensors.

    Args:
        keys_N: of this process's embeddings; they sort those of all (see `order_keys`).
    """

    def __init__(self, keys_N: Tensor) -> None:
        self._sizes = _sizes(keys_N)
        self._order = _gathered(keys_N, self._sizes).argsort()
        # positions of this process's embeddings
        self.local_N = self._order.argsort()[_local_slice(self._sizes)]

    def gather(self, x_ND: Tensor, sums_gradient: bool = True) -> Tensor:
        """All-gather embeddings in that order.

        Pass `sums_gradient=False` if every process receives the whole gradient anyway, as after
        `with_whole_gradient`.
        """
        return _gathered(x_ND, self._sizes, sums_gradient)[self._order]


def _sizes(x_ND: Tensor) -> list[int]:
    """N of each process."""
    if n_processes() == 1:
        return [len(x_ND)]
    counts = torch.zeros(n_processes(), dtype=torch.int64, device=_device(x_ND))
    counts[process_rank()] = len(x_ND)
    distributed.all_reduce(counts)
    sizes: list[int] = counts.tolist()
    return sizes


def _local_slice(sizes: list[int]) -> slice:
    """Where this process's embeddings are among those of all."""
    if len(sizes) == 1:
        return slice(None)
    start = sum(sizes[: process_rank()])
    return slice(start, start + sizes[process_rank()])


def with_whole_gradient(x_ND: Tensor) -> Tensor:
    """Identity for embeddings equal in all processes; backward sums their gradients."""
    return _WholeGradient.apply(x_ND)  # type: ignore[no-any-return, no-untyped-call]


class _WholeGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor) -> Tensor:
        return x_ND.view_as(x_ND)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return sum_over_processes(grads[0].contiguous())


def _gathered(x_ND: Tensor, sizes: list[int], sums_gradient: bool = True) -> Tensor:
    if len(sizes) == 1:
        return x_ND
    return _Gather.apply(x_ND, sizes, sums_gradient)  # type: ignore[no-any-return, no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, sizes: list[int], sums_gradient: bool) -> Tensor:
        ctx.sizes, ctx.sums_gradient = sizes, sums_gradient
        device = _device(x_ND)
        padded = x_ND.new_zeros(max(sizes), *x_ND.shape[1:], device=device)
        padded[: len(x_ND)] = x_ND
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)]).to(x_ND.device)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad_ND,) = grads
        total_ND = sum_over_processes(grad_ND.contiguous()) if ctx.sums_gradient else grad_ND
        return total_ND[_local_slice(ctx.sizes)], None, None


def _device(x: Tensor) -> torch.device:
    """The device that the backend can send from: for NCCL only the accelerator."""
    if x.device.type == "cpu" and distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return x.device
