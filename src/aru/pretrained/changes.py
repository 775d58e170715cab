"""Changes of effects that last, found when a forecast is made, in the latest rows that are kept of a series.

The sums of a series forget slowly. After a change their coefficients theta are those of before and since, mixed. So the
latest n rows of what theta leaves over, r, are asked for several n whether theta + delta would explain them better,
with delta ~ N(0, S) for all regressors, or for those of one covariate or of one part of the calendar. All are
deviations from a centred mean, so that a new level is no change of effects. Weights w are less for values far outside
of those beside them, and by (1 - rho) / (1 + rho) where neighbours are alike. With m = sum w, q = sum w r^2 / noise and
M = I + S^1/2 X'WX S^1/2 / noise the logarithm of the Bayes factor is

    (m + ROWS_BEFORE) / 2 log((ROWS_BEFORE + q) / (ROWS_BEFORE + q - gain)) - log det(M) / 2 - log(questions)

where gain is what delta explains of q, and all or some regressors are as many questions. It is that of a noise of
unknown size: larger errors alone are no change of effects. The question and n with the most evidence are taken, if
there is enough of it, and in part until there is plenty. Rows before the latest n keep theta.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aru.data.columns import Bools, Ints
from aru.data.columns import Floats as Array

GRID = (16, 24, 32, 48, 64, 96, 128, 192, 256)  # numbers of rows since a change that are considered
LATEST_ROWS = GRID[-1]
HALF_LEVEL = 6  # rows before and after a row whose mean is the level there
HALF_SIZE = 16  # the same of the mean size of deviations
FAR = 2.5  # a deviation beyond as many mean ones beside it has the influence of one that large
WIDER = 100.0  # variance of a change, as a multiple of that between series
WIDEST = 1e6  # the same as a multiple of the noise, at most
ROWS_BEFORE = 5.0  # rows that the usual noise counts for
EVIDENCE = 3.0  # logarithm of the Bayes factor that is enough to believe in a change at all: odds of 20 to 1
PLENTY = 10.0  # as much more of it until a change is believed in full; it may be one of the past already
ROUGHLY = -5.0  # the same by the rough rule, from which on it is asked exactly
DOUBT_ALONE = 8.0  # by how much more evidence one covariate needs alone: its rows come together, and so do their errors
MOST_ALIKE = 0.95  # largest correlation of neighbours
LEAST_NOISE, LARGEST_SQUARES = 1e-30, 1e12  # so that nothing overflows


class Changes(NamedTuple):
    """Of each series."""

    rows: Ints  # rows since the change; 0 if there is none
    delta: Array  # (series, k): by how much coefficients differ since then


class Beliefs(NamedTuple):
    """What is known of the regressions of series, and which of their k regressors belong together."""

    spread: Array  # (series, k) variance of coefficients between series
    noise: Array  # (series,) variance of what is usually left over
    moves: Array  # (series, k) variance of the regressors around their local level
    groups: Sequence[Ints]


class _Deviations(NamedTuple):
    """Of the latest (series, row) rows: what is left over, in units of the noise, weights, and whether it is known."""

    r: Array
    w: Array
    known: Array


def find_changes(left: Array, known: Bools, x: Array, beliefs: Beliefs) -> Changes:
    """Changes of the coefficients of each series.

    Args:
        left: (series, row) values less all effects, where `known`.
        known: Which rows have a value.
        x: (series, latest row, k) regressors.
        beliefs: What is known of the regressions.
    """
    n, k = len(left), x.shape[2]
    found = Changes(np.zeros(n, np.int64), np.zeros((n, k)))
    left, known = left[:, -2 * LATEST_ROWS :], known[:, -2 * LATEST_ROWS :]
    most = known.sum(1) // 2  # of the rows before a change there must be as many
    if not (most >= GRID[0]).any():
        return found
    root = np.sqrt(np.maximum(beliefs.noise, LEAST_NOISE))[:, None]
    ratio = beliefs.spread / root**2
    rows = _deviations(left / root, known, x.shape[1])
    questions = [*beliefs.groups, np.arange(k)]
    likely = _rough_evidence(rows, x, ratio, beliefs.moves, questions) > ROUGHLY
    likely &= (np.array([size for size, _ in _blocks(x.shape[1])]) <= most[:, None])[..., None]
    some = np.flatnonzero(likely.any((1, 2)))
    if len(some):
        few = _Deviations(*(value[some] for value in rows))
        changes = _changes(few, x[some], ratio[some], questions, likely[some])
        share = np.minimum((changes.evidence - EVIDENCE) / PLENTY, 1.0)[:, None]
        found.rows[some], found.delta[some] = changes.rows, share * changes.delta * root[some]
    return found


def _deviations(left: Array, known: Bools, latest: int) -> _Deviations:
    w = known.astype(np.float64)
    r = np.where(known, left - _mean_around(left, w, HALF_LEVEL), 0.0)
    size = np.abs(r)
    bound = 4 * size.sum(1, keepdims=True) / np.maximum(w.sum(1, keepdims=True), 1)
    kept = np.clip(r, -bound, bound)
    squares = np.maximum((kept * kept).sum(1, keepdims=True), np.finfo(float).tiny)
    alike = np.clip((kept[:, 1:] * kept[:, :-1]).sum(1, keepdims=True) / squares, 0.0, MOST_ALIKE)
    limit = FAR * _mean_around(size, w, HALF_SIZE)
    trust = np.minimum(limit, size) / np.maximum(size, np.finfo(float).tiny)
    trust = np.where(size > 0, trust, 1.0) * w * ((1 - alike) / (1 + alike))
    return _Deviations(*(value[:, -latest:] for value in (r, trust, w)))


def _mean_around(values: Array, weight: Array, half: int) -> Array:
    """Weighted mean of the rows up to `half` before and after each, (series, row, ...)."""
    n = values.shape[1]
    lo, hi = np.maximum(np.arange(n) - half, 0), np.minimum(np.arange(n) + half + 1, n)

    def around(v: Array) -> Array:
        total: Array = np.concatenate([np.zeros_like(v[:, :1]), np.cumsum(v, 1)], 1)
        return total[:, hi] - total[:, lo]

    mean: Array = around(values * weight) / np.maximum(around(weight), 1)
    return mean


def _prior(ratio: Array, moves: Array) -> Array:
    """Variance S of a change in units of the noise. Where a regressor moves slowly, it goes with the level."""
    variance: Array = np.minimum(WIDER * ratio * np.minimum(moves, 1) ** 2, WIDEST)
    return variance


def _blocks(rows: int) -> list[tuple[int, slice]]:
    """Each n of the grid, and the rows that it has more than the one before."""
    ends = [0, *(n for n in GRID if n <= rows)]
    return [(n, slice(rows - n, rows - before)) for before, n in itertools.pairwise(ends)]


def _doubts(questions: Sequence[Ints]) -> Array:
    """Evidence that a question has to make up for: none for all regressors, which come last."""
    alone = len(questions) - 1
    return np.array([DOUBT_ALONE + np.log(alone)] * alone + [0.0])


def _evidence(w: Array, q: Array, gain: Array, log_det: Array) -> Array:
    """Logarithms of Bayes factors."""
    q = np.minimum(q, LARGEST_SQUARES)
    rest = np.maximum(q - gain, 0.0)
    found: Array = 0.5 * (w + ROWS_BEFORE) * np.log((ROWS_BEFORE + q) / (ROWS_BEFORE + rest)) - 0.5 * log_det
    return found


def _rough_evidence(rows: _Deviations, x: Array, ratio: Array, moves: Array, questions: Sequence[Ints]) -> Array:
    """Evidence (series, n, question) as if regressors were uncorrelated and moved as usual: it needs no solve.

    x' (r less its mean) is (x less its mean)' r, but for the ends.
    """
    r, w, known = rows
    prior = _prior(ratio, moves)
    wr = w * r
    wr, square = wr - _mean_around(wr, known, HALF_LEVEL), wr * r
    members = np.stack([np.isin(np.arange(x.shape[2]), question) for question in questions], 1).astype(np.float64)
    b, weight, q = np.zeros_like(prior), np.zeros((len(x), 1)), np.zeros((len(x), 1))
    found = []
    for _, block in _blocks(x.shape[1]):
        b += np.matmul(wr[:, None, block], x[:, block])[:, 0]
        weight, q = (a + v[:, block].sum(1, keepdims=True) for a, v in ((weight, w), (q, square)))
        det = 1 + moves * weight * prior
        gain, log_det = (np.matmul(v[:, None], members)[:, 0] for v in (b * b * prior / det, np.log(det)))
        found.append(_evidence(weight, q, gain, log_det) - _doubts(questions))
    return np.stack(found, 1)


class _MostLikely(NamedTuple):
    """The change of each series with the most evidence, and how much that is."""

    rows: Ints
    delta: Array
    evidence: Array


def _changes(rows: _Deviations, x: Array, ratio: Array, questions: Sequence[Ints], likely: Bools) -> _MostLikely:
    """The change with the most evidence of each series, of those that are `likely` (series, n, question)."""
    r, w, known = rows
    here = known[..., None]
    x = (x - _mean_around(x, here, HALF_LEVEL)) * here
    sd = np.sqrt(_prior(ratio, (x * x).sum(1) / np.maximum(here.sum(1), 1)))
    x = x * sd[:, None]
    k = x.shape[2]
    system, right = np.tile(np.eye(k), (len(x), 1, 1)), np.zeros((len(x), k))
    weight, q = np.zeros(len(x)), np.zeros(len(x))
    found = _MostLikely(np.zeros(len(x), np.int64), np.zeros((len(x), k)), np.full(len(x), EVIDENCE))
    for (n, block), asked in zip(_blocks(x.shape[1]), likely.transpose(1, 2, 0), strict=True):
        wx = (w[:, block, None] * x[:, block]).transpose(0, 2, 1)
        system += np.matmul(wx, x[:, block])
        right += np.matmul(wx, r[:, block, None])[..., 0]
        weight, q = weight + w[:, block].sum(1), q + (w * r * r)[:, block].sum(1)
        for group, doubt, of in zip(questions, _doubts(questions), asked, strict=True):
            some = np.flatnonzero(of)
            if len(some) == 0:
                continue
            part, goal = system[some[:, None, None], group[:, None], group], right[some[:, None], group]
            solved = np.linalg.solve(part, goal[..., None])[..., 0]
            evidence = _evidence(weight[some], q[some], (solved * goal).sum(1), np.linalg.slogdet(part)[1]) - doubt
            better = np.flatnonzero(evidence > found.evidence[some])
            at = some[better]
            found.evidence[at], found.rows[at], found.delta[at] = evidence[better], n, 0.0
            found.delta[at[:, None], group] = sd[at[:, None], group] * solved[better]
    return found
