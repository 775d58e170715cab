"""Kernels for the CPU, compiled by Numba on first use and kept in its cache.

The functions that Numba compiles take their types from the arrays that they are called with. They release the
interpreter's lock, so that a batch is shared out among as many threads as torch has.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
import torch
from numba import njit
from torch import Tensor

Statistics = tuple[Tensor, Tensor, Tensor, Tensor]
LANES = 64  # systems that are solved side by side, entry by entry: the innermost loops run over them and vectorise
FLOATS_A_THREAD = 2**16  # smaller batches are not worth a second thread


def compile_kernel(*fastmath: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Numba's decorator for kernels; `fastmath` are LLVM's names of what the order of operations may give way to."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", *fastmath}}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            compiled: Callable[..., Any] = njit(function, cache=True, **options)
        except RuntimeError:  # no folder that may be written to: every process compiles anew
            compiled = njit(function, **options)
        return compiled

    return decorate


def solve(sxx: Tensor, sxy: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """See `aru.kernels.solve`."""
    dim = sxy.shape[-1]
    A, b, lam = _array(sxx).reshape(-1, dim, dim), _array(sxy).reshape(-1, dim), _array(ridge)
    theta, failed = np.empty_like(b), np.empty(len(b), np.bool_)
    share(lambda lo, hi: _solve(A, b, lam, theta, failed, lo, hi), len(b), dim * dim, LANES)
    return torch.from_numpy(theta).reshape(sxy.shape), torch.from_numpy(failed).reshape(sxy.shape[:-1])


def absorb(
    state: Statistics, alphas: Tensor, theta: Tensor, x: Tensor, y: Tensor, w: Tensor, steps: Tensor
) -> Statistics:
    """See `aru.kernels.absorb`."""
    old = tuple(map(_array, state))
    new = tuple(map(np.empty_like, old))
    rows = tuple(map(_array, (alphas, theta, x, y, w, steps)))
    share(lambda lo, hi: _absorb(*old, *rows, *new, lo, hi), len(x), old[0][0].size, 1)
    sxx, sxy, sn, ss = map(torch.from_numpy, new)
    return sxx, sxy, sn, ss


def _array(value: Tensor) -> Any:
    return np.ascontiguousarray(value.detach().numpy())


def share(work: Callable[[int, int], None], n: int, floats: int, multiple: int) -> None:
    """Run `work` on parts of range(n), which has that many floats each, in as many threads as pay."""
    threads = min(torch.get_num_threads(), n * floats // FLOATS_A_THREAD)
    if threads <= 1:
        work(0, n)
        return
    part = -(-n // threads // multiple) * multiple
    pool = _pool(os.getpid())
    futures = [pool.submit(work, lo, min(lo + part, n)) for lo in range(part, n, part)]
    work(0, min(part, n))
    for future in futures:
        future.result()


@functools.cache
def _pool(process: int) -> concurrent.futures.ThreadPoolExecutor:
    """Threads of this process: a forked one has none of its parent's."""
    return concurrent.futures.ThreadPoolExecutor(thread_name_prefix="aru-kernels")


@compile_kernel()
@no_type_check
def _solve(A, b, ridge, theta, failed, lo, hi):
    """Systems lo to hi. Row d of L is the right-hand side: eliminating it is the forward substitution."""
    d = b.shape[1]
    L = np.empty((d + 1, d, LANES))
    good = np.empty(LANES, np.bool_)
    for at in range(lo, hi, LANES):
        n = min(LANES, hi - at)
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


@compile_kernel()
@no_type_check
def _absorb(sxx, sxy, sn, ss, alphas, theta, x, y, w, steps, sxx_, sxy_, sn_, ss_, lo, hi):
    """Series lo to hi: the statistics with the names' underscore are written."""
    J, d = sxy.shape[1:]
    for b in range(lo, hi):
        for j in range(J):
            kept = alphas[j] ** steps[b]
            for i in range(d):
                for k in range(d):
                    sxx_[b, j, i, k] = kept * sxx[b, j, i, k]
                sxy_[b, j, i] = kept * sxy[b, j, i]
            sn_[b, j] = kept * sn[b, j]
            ss_[b, j] = kept * ss[b, j]
            for row in range(min(steps[b], len(y[b]))):
                aged = alphas[j] ** (steps[b] - 1 - row) * w[b, row]
                residual = y[b, row]
                for i in range(d):
                    residual -= theta[b, j, i] * x[b, row, i]
                    wx = aged * x[b, row, i]
                    for k in range(d):
                        sxx_[b, j, i, k] += wx * x[b, row, k]
                    sxy_[b, j, i] += wx * y[b, row]
                sn_[b, j] += aged
                ss_[b, j] += aged * residual * residual
