"""The ridge solve and the update of its statistics for the CPU, compiled by Numba on first use and cached.

`aru.nn.ridge` has the same functions in torch and documents them. The compiled functions release the interpreter's
lock, so that a batch is divided among as many threads as torch has. Results are equal to the bit whatever else is in
the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
import torch
from numba import njit
from torch import Tensor

from aru.nn.threads import in_parallel

SIDE_BY_SIDE = 64  # systems that are solved together: the innermost loops run over them and vectorise
FLOATS_A_PART = 2**16  # size of the systems in one part of the work: less is not worth a second thread


def solve(sxx: Tensor, sxy: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """See `aru.nn.ridge.solve`."""
    dim = sxy.shape[-1]
    A, b, lam = _array(sxx).reshape(-1, dim, dim), _array(sxy).reshape(-1, dim), _array(ridge)
    theta, failed = np.empty_like(b), np.empty(len(b), np.bool_)
    part = -(-FLOATS_A_PART // (dim * dim * SIDE_BY_SIDE)) * SIDE_BY_SIDE
    in_parallel(lambda lo, hi: _solve(A, b, lam, theta, failed, lo, hi), len(b), part)
    return torch.from_numpy(theta).reshape(sxy.shape), torch.from_numpy(failed).reshape(sxy.shape[:-1])


def absorb(
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    alphas: Tensor,
    theta: Tensor,
    h: Tensor,
    y: Tensor,
    w: Tensor,
    steps: Tensor,
    together: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `aru.nn.ridge.absorb`."""
    new = tuple(np.array(_array(v)) for v in state)
    rows = tuple(map(_array, (alphas, theta, h, y, w, steps)))
    part = -(-FLOATS_A_PART // new[0][0].size)
    in_parallel(lambda lo, hi: _absorb(*new, *rows, together, lo, hi), len(h), part)
    sxx, sxy, sn, ss = map(torch.from_numpy, new)
    return sxx, sxy, sn, ss


def _array(value: Tensor) -> Any:
    return np.ascontiguousarray((value.detach() if value.requires_grad else value).numpy())


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        kept: Callable[..., Any] = njit(function, cache=True, **options)
        return kept
    except RuntimeError:  # no writable folder for the cache: every process compiles again
        compiled: Callable[..., Any] = njit(function, **options)
        return compiled


@_compiled
@no_type_check
def _solve(A, b, ridge, theta, failed, lo, hi):
    """Solve systems lo to hi by Cholesky. Row d of L holds the right-hand side, for the forward substitution."""
    d = b.shape[1]
    L = np.empty((d + 1, d, SIDE_BY_SIDE))
    good = np.empty(SIDE_BY_SIDE, np.bool_)
    for at in range(lo, hi, SIDE_BY_SIDE):
        n = min(SIDE_BY_SIDE, hi - at)
        for i in range(d):
            for j in range(i + 1):
                entry = L[i, j]
                for s in range(n):
                    entry[s] = A[at + s, i, j]
        for i in range(d):
            diagonal, right = L[i, i], L[d, i]
            for s in range(n):
                diagonal[s] += ridge[(at + s) % len(ridge)]
                right[s] = b[at + s, i]
        good[:] = True
        for j in range(d):
            for k in range(j):
                factor = L[j, k]
                for i in range(j, d + 1):
                    entry, left = L[i, j], L[i, k]
                    for s in range(n):
                        entry[s] -= left[s] * factor[s]
            pivot = L[j, j]
            for s in range(n):
                good[s] &= pivot[s] > 0.0
                pivot[s] = 1.0 / np.sqrt(pivot[s])
            for i in range(j + 1, d + 1):
                entry = L[i, j]
                for s in range(n):
                    entry[s] *= pivot[s]
        for k in range(d - 1, -1, -1):
            answer, pivot = L[d, k], L[k, k]
            for s in range(n):
                answer[s] *= pivot[s]
                good[s] &= np.isfinite(answer[s])
            for i in range(k):
                entry, left = L[d, i], L[k, i]
                for s in range(n):
                    entry[s] -= left[s] * answer[s]
        for s in range(n):
            failed[at + s] = not good[s]
            for i in range(d):
                theta[at + s, i] = L[d, i, s] if good[s] else 0.0


@_compiled
@no_type_check
def _absorb(sxx, sxy, sn, ss, alphas, theta, h, y, w, steps, together, lo, hi):
    """Update series lo to hi in place, row by row: one call or several calls give the same bits."""
    J, d = sxy.shape[1:]
    x = np.ones(d)  # of one row, in double precision; the constant comes last
    for b in range(lo, hi):
        for row in range(min(steps[b], len(y[b]))):
            x[:-1] = h[b, row]
            u, weight = np.float64(y[b, row]), np.float64(w[b, row])
            for j in range(J):
                alpha = 1.0 if together and row else alphas[j]
                residual = u
                for i in range(d):
                    residual -= theta[b, j, i] * x[i]
                    wx = weight * x[i]
                    for k in range(d):
                        sxx[b, j, i, k] = alpha * sxx[b, j, i, k] + wx * x[k]
                    sxy[b, j, i] = alpha * sxy[b, j, i] + wx * u
                sn[b, j] = alpha * sn[b, j] + weight
                ss[b, j] = alpha * ss[b, j] + weight * residual * residual
        beyond = steps[b] - len(y[b])
        if beyond > 0 and not together:  # steps without a row
            for j in range(J):
                kept = alphas[j] ** beyond
                sxx[b, j] *= kept
                sxy[b, j] *= kept
                sn[b, j] *= kept
                ss[b, j] *= kept
