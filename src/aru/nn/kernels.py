"""The ridge solve and the update of its statistics for the CPU, compiled by Numba on first use and cached.

`aru.nn.ridge` has the same functions in torch and documents them. The compiled functions release the interpreter's
lock, so that a batch is divided among as many threads as torch has. Results are equal to the bit whatever else is in
the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import numpy as np
import torch
from numba import njit
from torch import Tensor

from aru.nn.threads import in_parallel

SIDE_BY_SIDE = 64  # systems that are solved together: the innermost loops run over them and vectorise
ROWS_A_PART = 2**12  # series in one part of the screening
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
    fade: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `aru.nn.ridge.absorb`."""
    new = tuple(np.array(_array(v)) for v in state)
    rows = tuple(map(_array, (alphas, theta, h, y, w, fade, steps)))
    part = -(-FLOATS_A_PART // new[0][0].size)
    in_parallel(lambda lo, hi: _absorb(*new, *rows, together, lo, hi), len(h), part)
    sxx, sxy, sn, ss = map(torch.from_numpy, new)
    return sxx, sxy, sn, ss


def _array(value: Tensor) -> Any:
    return np.ascontiguousarray((value.detach() if value.requires_grad else value).numpy())


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called, and keep the result for other processes if possible."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        kept: Callable[..., Any] = njit(function, cache=True, **options)
        return kept
    except RuntimeError:  # no writable folder for the cache: every process compiles again
        made: Callable[..., Any] = njit(function, **options)
        return made


@compiled
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


@compiled
@no_type_check
def _absorb(sxx, sxy, sn, ss, alphas, theta, h, y, w, fade, steps, together, lo, hi):
    """Update series lo to hi in place, row by row: one call or several calls give the same bits."""
    J, d = sxy.shape[1:]
    x = np.ones(d)  # of one row, in double precision; the constant comes last
    for b in range(lo, hi):
        for row in range(min(steps[b], len(y[b]))):
            x[:-1] = h[b, row]
            u, weight = np.float64(y[b, row]), np.float64(w[b, row])
            for j in range(J):
                alpha = (1.0 if together and row else alphas[j]) * fade[b, row]
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


LIMIT = 4.0  # ranges by which a value may leave the envelope
FEW = 16.0  # values other than 0 until the limit is about twice that
LEAST_RANGE = 0.25  # of the largest absolute value inside
NARROWING = 1 - 0.5 ** (1 / 100)  # share of the way towards a value that differs from the one before
ALIKE = 3.0  # factor between the distances of two values that confirm each other
CONFIRMED_WITHIN = 4000.0  # rows times ranges


def screen(
    envelope: Sequence[Tensor], y: Tensor, came: Tensor, starts: Tensor, lengths: Tensor, skipped: Tensor
) -> tuple[list[Tensor], Tensor]:
    """See `aru.nn.envelope.hold_back`."""
    new, held = [np.array(_array(value)) for value in envelope], np.zeros(len(y), np.bool_)
    rows = [_array(value) for value in (y, came, starts, lengths, skipped)]
    in_parallel(lambda lo, hi: _screen(*new, *rows, held, lo, hi), len(starts), ROWS_A_PART)
    return [torch.from_numpy(value) for value in new], torch.from_numpy(held)


@compiled
@no_type_check
def _screen(low, high, last, values, doubt, waited, y, came, starts, lengths, skipped, held, lo, hi):
    for i in range(lo, hi):
        for r in range(starts[i], starts[i] + lengths[i]):
            if waited[i] >= 0:
                waited[i] += 1 + skipped[r]
            if not came[r]:
                continue
            value = y[r]
            least = LEAST_RANGE * max(abs(low[i]), abs(high[i]))
            reach = max(high[i] - low[i], least)
            out = max(value - high[i], low[i] - value)
            accepted = values[i] < 2
            if not accepted:
                slack = 1 + FEW / values[i]
                crossed = (value < 0 and low[i] >= 0) or (value > 0 and high[i] <= 0)
                accepted = out <= slack * (slack if crossed else LIMIT) * reach
            if not accepted and waited[i] >= 0:
                before = max(doubt[i] - high[i], low[i] - doubt[i])
                alike = out <= ALIKE * before and before <= ALIKE * out
                accepted = alike and (waited[i] <= 2 or waited[i] * out <= CONFIRMED_WITHIN * reach)
                if accepted:
                    waited[i] = -1
            if not accepted:
                held[r], doubt[i], waited[i] = True, value, 0
                continue
            values[i] += value != 0
            moved = value != last[i]
            if value > high[i]:
                high[i] = value
            elif moved:
                high[i] += (value - high[i]) * NARROWING
            if value < low[i]:
                low[i] = value
            elif moved:
                low[i] += (value - low[i]) * NARROWING
            last[i] = value


EFFECT_AGE = 0.9995  # by which sums of effects are multiplied at every row
LEVEL_HALF_LIFE = 20.0  # rows; of the local level that values and regressors are compared with
EFFECT_ROBUST = 2.0  # a deviation beyond as many mean absolute ones has the influence of one that large
SIZE_ROWS = 100  # rows; over which the mean absolute deviation is taken
SIZE_KNOWN = 5  # deviations seen before any is called large
FIRST_JUMP = 8.0  # times the level, or a part of it as small, by which one of these is no deviation but another level
ROUNDING = 1e-9  # deviations below this share of the value are rounding


def absorb_effects(sums: Sequence[Tensor], x: Tensor, y: Tensor, observed: Tensor, steps: Tensor) -> list[Tensor]:
    """See `aru.pretrained.effects.absorb`."""
    new = [np.array(_array(value)) for value in sums]
    rows = [_array(value) for value in (x, y, observed, steps)]
    part = max(1, FLOATS_A_PART // max(1, x[0].numel()))
    in_parallel(lambda lo, hi: _absorb_effects(*new, *rows, lo, hi), len(new[0]), part)
    return [torch.from_numpy(value) for value in new]


@compiled
@no_type_check
def _absorb_effects(xx, xz, zz, weight, slope, level, seen, size, rows, negative, x, y, observed, steps, lo, hi):
    """Take in rows of series lo to hi. Sums are rounded to single precision after every row, however rows are cut."""
    k = x.shape[2]
    keep = 0.5 ** (1 / LEVEL_HALF_LIFE)
    dx, z, dz = np.empty(k), np.empty(2), np.empty(2)
    for i in range(lo, hi):
        for r in range(steps[i]):
            for j in range(xx.shape[1]):
                xx[i, j] *= EFFECT_AGE
            for a in range(2):
                for j in range(k):
                    xz[i, a, j] *= EFFECT_AGE
                zz[i, a] *= EFFECT_AGE
            weight[i] *= EFFECT_AGE
            slope[i] *= EFFECT_AGE
            negative[i] *= EFFECT_AGE
            if not observed[i, r]:
                continue
            value = y[i, r]
            z[0] = np.log1p(max(value, -0.999))
            z[1] = value
            if value <= -1:
                negative[i] += 1
                if seen[i] > 0:
                    z[0] = level[i, k]  # no logarithm: nothing is learned from it
            first = rows[i] <= SIZE_KNOWN or (rows[i] == SIZE_KNOWN + 1 and seen[i] == 1)
            small, large = min(abs(z[1]), abs(level[i, k + 1])), max(abs(z[1]), abs(level[i, k + 1]))
            if seen[i] > 0 and first and small > 0 and large > FIRST_JUMP * small:
                rows[i] += 1
                for a in range(2):
                    most = (FIRST_JUMP - 1) * small if a else np.log(FIRST_JUMP)  # as large as a deviation may be
                    far = min(abs(z[a] - level[i, k + a]), most)
                    size[i, a] += (far - size[i, a]) / rows[i]
                seen[i] = 0
            if seen[i] > 0:
                whole = seen[i] / (seen[i] + 1.0)
                w = whole
                moved = False
                for a in range(2):
                    dz[a] = z[a] - level[i, k + a]
                    if abs(dz[a]) <= ROUNDING * abs(z[a]):
                        dz[a] = 0.0
                    moved = moved or dz[a] != 0.0
                    limit = EFFECT_ROBUST * size[i, a]
                    if rows[i] > SIZE_KNOWN and abs(dz[a]) > limit:
                        w = min(w, whole * limit / abs(dz[a]))
                at = 0
                for j in range(k):
                    dx[j] = x[i, r, j] - level[i, j]
                    for m in range(j + 1):
                        xx[i, at] += w * dx[j] * dx[m]
                        at += 1
                sure = rows[i] > SIZE_KNOWN
                if moved:  # a series that stands still does not make its next move an outlier
                    rows[i] += 1
                for a in range(2):
                    for j in range(k):
                        xz[i, a, j] += w * dx[j] * dz[a]
                    zz[i, a] += w * dz[a] * dz[a]
                    if moved:
                        far = abs(dz[a])
                        if sure:
                            far = min(far, EFFECT_ROBUST * size[i, a])
                        size[i, a] += (far - size[i, a]) / min(rows[i], SIZE_ROWS)
                weight[i] += w
                slope[i] -= w * z[0]
            seen[i] = keep * seen[i] + 1
            for j in range(k + 2):
                new = x[i, r, j] if j < k else z[j - k]
                level[i, j] += (new - level[i, j]) / seen[i]


def smooth_numbers(values: Any, mean: Any, weight: Any, half_lives: Any, steps: Any) -> tuple[Any, Any, Any]:
    """Moving averages at each of the (series, row, average) values, and what is kept after the first `steps` rows.

    A missing value (NaN) leaves an average as it is. Before the first it is 0.
    """
    out, mean, weight = np.empty(values.shape), np.array(mean), np.array(weight)
    _smooth_numbers(values, mean, weight, 0.5 ** (1 / half_lives), steps, out)
    return out, mean, weight


@compiled
@no_type_check
def _smooth_numbers(values, mean, weight, keep, steps, out):
    for i in range(values.shape[0]):
        for j in range(values.shape[2]):
            for r in range(values.shape[1]):
                value = values[i, r, j]
                if r < steps[i] and not np.isnan(value):
                    weight[i, j] = keep[j] * weight[i, j] + 1.0
                    mean[i, j] += (value - mean[i, j]) / weight[i, j]
                out[i, r, j] = mean[i, j]
