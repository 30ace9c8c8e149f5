"""Muon for matrices of encoder blocks and AdamW for all other parameters, as one optimizer."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.optim import AdamW, Optimizer

from isotrain.arguments import checked

Share = Annotated[float, Field(ge=0, lt=1)]


class MuonAdamW(Optimizer):
    """One optimizer: Muon updates the groups with `is_matrix`, AdamW all others.

    Muon, for a matrix W `[A, B]` with gradient G, momentum μ, decay λ and learning rate γ:

    M ← μ M + (1 − μ) G;  O = NS(G + μ (M − G));  W ← (1 − γ λ) W − γ s O

    NS is a Newton–Schulz iteration in bfloat16 that brings all singular values to about 1
    (0.7 to 1.2), so each update is nearly orthogonal. With the factor s = 0.2·√max(A, B) its
    entries have the rms of an AdamW update, 0.2.

    `parameter_groups` marks the matrices: the 2-D parameters of blocks, factors of LoRA included,
    each orthogonalised alone; no embeddings, no (IA)³ scales. Everything else (norms, biases,
    embeddings, head, isotropy layers) takes the same steps as under `torch.optim.AdamW`.

    Both share `state` and `param_groups`, so schedules, clipping, checkpoints and freezing see one
    optimizer. A parameter without a gradient keeps weight and state.

    Args:
        params: groups, or parameters (AdamW only).
        lr: of AdamW.
        betas, eps, weight_decay, fused: of AdamW.
        muon_lr: γ.
        momentum: μ, in [0, 1).
        muon_weight_decay: λ.

    Raises:
        ValueError: a number outside its bounds, or a matrix group with a parameter that is not 2-D.

    Jordan et al. 2024; the factor: Liu et al. 2025, equation 4. Needs torch 2.9.

    >>> w, b = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2))
    >>> groups = [{"params": [w], "is_matrix": True}, {"params": [b]}]
    >>> optimizer = MuonAdamW(groups, muon_lr=5.0 / 2**0.5)
    >>> w.grad, b.grad = torch.tensor([[0.0, 5.0], [-0.1, 0.0]]), torch.ones(2)
    >>> optimizer.step()
    >>> w.detach().round().tolist()  # less an orthogonal matrix, about
    [[0.0, -1.0], [1.0, 0.0]]
    """

    marks_matrices = True  # `FineTuning` gives the matrices of blocks groups of their own

    @checked
    def __init__(
        self,
        params: Iterable[Any],
        lr: Annotated[float, Field(ge=0)] = 5e-5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Annotated[float, Field(ge=0)] = 1e-8,
        weight_decay: Annotated[float, Field(ge=0)] = 0.01,
        fused: bool = True,
        muon_lr: Annotated[float, Field(ge=0, le=1e9)] = 5e-5,
        momentum: Share = 0.95,
        muon_weight_decay: Annotated[float, Field(ge=0, le=1e18)] = 0.01,
    ) -> None:
        from torch.optim import Muon  # torch 2.9 and newer: runs with AdamW do not need it

        groups: list[dict[str, Any]] = [
            param if isinstance(param, dict) else {"params": [param]} for param in params
        ]
        for group in groups:
            group.setdefault("is_matrix", False)
        # Each adds its options to its groups, which are those in `param_groups`.
        self._parts: dict[bool, Optimizer] = {}
        if muon_groups := [group for group in groups if group["is_matrix"]]:
            self._parts[True] = Muon(
                muon_groups,
                lr=muon_lr,
                weight_decay=muon_weight_decay,
                momentum=momentum,
                adjust_lr_fn="match_rms_adamw",
            )
        if adamw_groups := [group for group in groups if not group["is_matrix"]]:
            first, second = betas
            self._parts[False] = AdamW(
                adamw_groups,
                lr=lr,
                betas=(first, second),
                eps=eps,
                weight_decay=weight_decay,
                fused=fused,
            )
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both, after the closure, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for is_matrix, optimizer in self._parts.items():
            # current ones: `load_state_dict` creates new groups
            optimizer.param_groups = [g for g in self.param_groups if g["is_matrix"] == is_matrix]
            optimizer.state = self.state
            optimizer.step()
        return loss
