"""What both closed forms, of one output and of mixed ones, do to join the engines to torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ENGINES = ("fused", "batched")


def check_engine(engine: str, query: torch.Tensor) -> str:
    """The engine to use for a query: the one asked for, on accelerators always the batched one."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: expected one of {', '.join(ENGINES)}.")
    return engine if query.device.type == "cpu" else "batched"


def check_ascending(ks: np.ndarray) -> None:
    if (np.diff(ks, prepend=0) < 0).any():
        raise ValueError(f"ks must be numbers of neighbours in ascending order, got {ks}.")


def run_engine(
    fused: Any, batched: Any, kernel: Any, problem: Any, engine: str, ks: np.ndarray, differentiate: bool = False
) -> tuple[Any, Any]:
    """The problem as the engine has it, torch or numpy, and the result of the engine's module, one of the two."""
    if engine == "batched":
        return problem, batched.run(kernel, problem, torch.from_numpy(ks).to(problem.ids.device))
    problem = type(problem)(*(np.ascontiguousarray(t.detach().numpy()) for t in problem))
    return problem, fused.run(kernel, problem, ks, differentiate=differentiate)


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else torch.as_tensor(x)
