"""The network and the cell beside it, one series after the other, without gradients: compiled by Numba.

What the modules of `aru.models` compute for a batch, operation by operation, is one pass over each series here: nothing
is concatenated, unfolded or kept. Two things are done ahead (`aru.models.compiled`): an embedding that only enters a
product is replaced by that product, and matrices are padded with zeros, columns to a multiple of LANES, so that loops
over units vectorise, and rows to a multiple of CHAINS. An answer does not depend on the series beside it, to the bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, no_type_check

import numpy as np

from aru.kernels.compiled import compile_kernel, share
from aru.kernels.lanes import CHAINS, DOUBLES, add_product, add_row, as_float

FLOATS_A_SERIES = 2**13  # work of a series as `share` counts it
Array = Any
NONE = np.float32(-np.inf)  # no limit
TINY = float(np.finfo(np.float64).tiny)
_kernel = compile_kernel("reassoc", "nsz", "arcp")

# How local predictions join the network (`aru.models.joint`); HEAD: there are none.
HEAD, PAPER, SKIP, RESIDUAL, DIRECT = range(5)
TRANSFORMS = (None, "log1p", "asinh")


class Shape(NamedTuple):
    """Sizes and settings that the kernels need besides weights."""

    input_size: int
    stride: int
    enough: int  # values that an origin must have known for its window to be learned from
    season: int  # 0: none
    prior: float  # of the scale, inf: none (`aru.windows.Scaling`)
    transform: int  # index into TRANSFORMS
    integration: int
    robust: bool
    counts: bool  # negative binomial
    use_variance: bool
    unit: float
    typical: float
    min_sigma: float
    small_count: float
    spread_prior: float
    student_df: float


class Weights(NamedTuple):
    """Rows are inputs, columns outputs.

    "gates" are the encoder's, "layers" the first two of the decoder, side by side. Gates are ordered input, forget,
    output, cell, the first three negated and the last times -2: `_lstm` says why.
    """

    gates_b: Array
    gates_past: Array
    gates_futr: Array
    gates_futr_tables: Array
    gates_static: Array
    gates_static_tables: Array
    gates_hist: Array
    gates_hist_tables: Array
    gates_lag: Array
    layers_b: Array
    layers_futr: Array
    layers_futr_tables: Array
    layers_static: Array
    layers_static_tables: Array
    layers_lag: Array
    recurrent: Array
    upper_x: Array  # of further layers of the encoder, one below the other
    upper_h: Array
    upper_b: Array
    from_g: Array
    layer2: Array
    layer3: Array
    layer3_b: Array
    head: Array  # the global head: columns mu and raw spread
    head_b: Array
    mix: Array
    mu1: Array  # of h and local means
    mu1_b: Array
    mu2: Array
    mu2_b: Array
    out_mu: Array
    out_mu_b: Array
    sigma1: Array
    sigma1_a: Array  # the part that local spreads enter
    sigma1_b: Array
    sigma2: Array
    sigma2_b: Array
    out_sigma: Array
    out_sigma_b: Array
    alphas: Array
    ridge: Array
    futr_tables: Array  # first row of each column's table
    static_tables: Array
    hist_tables: Array
    lags: Array


class Network(NamedTuple):
    """A trained network as the kernels take it."""

    shape: Shape
    weights: Weights


class Context(NamedTuple):
    """What is kept of each series (`aru.state.SeriesState`)."""

    y: Array
    observed: Array
    futr: Array  # the rows of one series after those of the other
    futr_cat: Array
    hist: Array
    hist_cat: Array
    static: Array
    static_cat: Array
    total: Array
    count: Array


class New(NamedTuple):
    """Rows after the context, and whose they are."""

    y: Array
    observed: Array
    futr: Array
    futr_cat: Array
    hist: Array
    hist_cat: Array
    starts: Array
    lengths: Array
    skipped: Array


class Learned(NamedTuple):
    """What the model keeps of each series."""

    sxx: Array
    sxy: Array
    sn: Array
    ss: Array
    theta: Array
    now: Array
    g: Array
    scale: Array


def forecast(net: Network, context: Context, new: New, learned: Learned, h: int) -> tuple[Array, Array, Array, Array]:
    """Location and raw spread of the `h` rows of each series, (series, h), its scale, and whether its fit failed."""
    n = len(context.y)
    mu, raw = np.empty((n, h), np.float32), np.empty((n, h), np.float32)
    scale, failed = np.empty(n), np.zeros(n, np.bool_)
    local = learned.now, learned.sn, learned.ss

    def work(lo: int, hi: int) -> None:
        _forecast(net.shape, *net.weights, *context, *new, *local, mu, raw, scale, failed, lo, hi)

    share(work, n, FLOATS_A_SERIES, 1)
    return mu, raw, scale, failed


def learn(net: Network, context: Context, new: New, learned: Learned, steps: Array) -> Learned:
    """What is known of each series after all of its rows; `steps` passed before them since its first value."""
    after = Learned._make(map(np.empty_like, learned))
    flat = after._replace(sxx=after.sxx.reshape(*after.sxx.shape[:2], -1))

    def work(lo: int, hi: int) -> None:
        for new_part, old in zip(after, learned, strict=True):
            new_part[lo:hi] = old[lo:hi]
        _learn(net.shape, *net.weights, *context, *new, *flat, steps, lo, hi)

    share(work, len(steps), FLOATS_A_SERIES, 1)
    return after


@_kernel
@no_type_check
def _exp(x):
    """exp(x) to float32's precision: 2^k times a polynomial of the rest. Beyond 43 nothing here changes."""
    x = min(max(x, np.float32(-43.0)), np.float32(43.0))
    k = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - k * np.float32(0.693359375)
    r = r - k * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1.0)) * as_float((np.int32(k) + np.int32(127)) << np.int32(23))


@_kernel
@no_type_check
def _transform(kind, ratio):
    if kind == 1:
        return math.log1p(max(ratio, 0.0))
    return math.asinh(ratio) if kind == 2 else ratio


@_kernel
@no_type_check
def _add_value(kind, y, observed, scale, w, row, out):
    """Add what a past value and its presence contribute, by two rows of w."""
    ratio = y / scale
    if observed and abs(ratio) < 1e9:
        add_row(out, np.float32(_transform(kind, ratio)), w, row, out)
        add_row(out, np.float32(1.0), w, row + 1, out)


@_kernel
@no_type_check
def _lstm(gates, quarters, recurrent, row, c, h):
    """One step. `gates` hold the input's part, and are overwritten; `quarters` are the same, (4, units).

    With e = exp of the gates as they are stored, sigmoid is 1 / (1 + e) and tanh is (1 - e) / (1 + e).
    """
    one, U = np.float32(1.0), len(c)
    add_product(gates, h, U, recurrent, row, NONE, gates)
    for u in range(U):
        i, f, o, g = _exp(quarters[0, u]), _exp(quarters[1, u]), _exp(quarters[2, u]), _exp(quarters[3, u])
        new = c[u] / (one + f) + (one - g) / ((one + g) * (one + i))
        out = _exp(np.float32(-2.0) * new)
        c[u] = new
        h[u] = (one - out) / ((one + out) * (one + o))


@_kernel
@no_type_check
def _scale(shape, y, observed, new_y, new_observed, b, start, t, total, count):
    """s(o) at the origin after `t` rows (`aru.windows.scales`)."""
    if count <= 0:
        return shape.typical
    overall = total / count
    if shape.prior == np.inf:
        return shape.unit + overall
    near, n, M = 0.0, 0, y.shape[1]
    for at in range(t - shape.input_size, t):
        if new_observed[start + at] if at >= 0 else observed[b, M + at]:
            near += abs(new_y[start + at] if at >= 0 else y[b, M + at])
            n += 1
    return (near + shape.prior * overall) / (n + shape.prior) + 1e-3 * shape.unit


@_kernel
@no_type_check
def _add_inputs(base, numbers, codes, row, w, tables, firsts, out):
    """out = base + what covariates contribute: numbers by a product, categories by a row of their table."""
    if len(firsts):
        add_row(base, np.float32(1.0), tables, firsts[0] + codes[row, 0], out)
    else:
        for o in range(len(out)):
            out[o] = base[o]
    for i in range(1, len(firsts)):
        add_row(out, np.float32(1.0), tables, firsts[i] + codes[row, i], out)
    for i in range(numbers.shape[1]):
        add_row(out, numbers[row, i], w, i, out)


@_kernel
@no_type_check
def _encode(
    kind, recurrent, past, lag, futr_w, futr_rows, hist_w, hist_rows, upper_x, upper_h, upper_b,
    futr_tables, hist_tables, lags, y, observed, futr, futr_cat, hist, hist_cat,
    new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat,
    b, start, t, scale, base, gates, quarters, c, h, outputs,
):  # fmt: skip
    """g, in h, of the context that ends after `t` rows; `base` is what every row adds."""
    (E, U), M = outputs.shape, y.shape[1]
    for u in range(U):
        c[u], h[u] = np.float32(0.0), np.float32(0.0)
    for row in range(E):
        i = t - E + row
        if i >= 0:
            _add_inputs(base, new_futr, new_futr_cat, start + i, futr_w, futr_rows, futr_tables, gates)
            if len(hist_w) or len(hist_tables):
                _add_inputs(gates, new_hist, new_hist_cat, start + i, hist_w, hist_rows, hist_tables, gates)
        else:
            _add_inputs(base, futr, futr_cat, (b + 1) * E + i, futr_w, futr_rows, futr_tables, gates)
            if len(hist_w) or len(hist_tables):
                _add_inputs(gates, hist, hist_cat, (b + 1) * E + i, hist_w, hist_rows, hist_tables, gates)
        value, seen = (new_y[start + i], new_observed[start + i]) if i >= 0 else (y[b, M + i], observed[b, M + i])
        _add_value(kind, value, seen, scale, past, 0, gates)
        for k in range(len(lags)):
            j = i - lags[k]
            value, seen = (new_y[start + j], new_observed[start + j]) if j >= 0 else (y[b, M + j], observed[b, M + j])
            _add_value(kind, value, seen, scale, lag, 2 * k, gates)
        _lstm(gates, quarters, recurrent, 0, c, h)
        for u in range(U):
            outputs[row, u] = h[u]
    for layer in range(len(upper_b)):
        for u in range(U):
            c[u], h[u] = np.float32(0.0), np.float32(0.0)
        for row in range(E):
            add_product(upper_b[layer], outputs[row], U, upper_x, layer * U, NONE, gates)
            _lstm(gates, quarters, upper_h, layer * U, c, h)
            for u in range(U):
                outputs[row, u] = h[u]


@_kernel
@no_type_check
def _decode(
    kind, season, futr_w, futr_rows, lag, layer2, layer3, layer3_b, futr_tables, lags,
    y, observed, new_y, new_observed, new_futr, new_futr_cat, b, start, t, lead, scale, base, a, a1, a2, h,
):  # fmt: skip
    """h of row `t`, the `lead`-th after an origin that adds `base` to the first two layers."""
    M, zero = y.shape[1], np.float32(0.0)
    _add_inputs(base, new_futr, new_futr_cat, start + t, futr_w, futr_rows, futr_tables, a)
    for k in range(len(lags)):
        j = t - lags[k]
        value, seen = (new_y[start + j], new_observed[start + j]) if j >= 0 else (y[b, M + j], observed[b, M + j])
        _add_value(kind, value, seen, scale, lag, 2 * k, a)
    if season:
        j = t - -(-lead // season) * season
        value, seen = (new_y[start + j], new_observed[start + j]) if j >= 0 else (y[b, M + j], observed[b, M + j])
        _add_value(kind, value, seen, scale, lag, 2 * len(lags), a)
    for o in range(len(a1)):
        a1[o] = max(a1[o], zero)
    add_product(a2, a1, len(layer2), layer2, 0, zero, a2)
    add_product(layer3_b, a2, len(layer3), layer3, 0, zero, h)


@_kernel
@no_type_check
def _forecast(
    shape,
    gates_b, gates_past, gates_futr, gates_futr_tables, gates_static, gates_static_tables, gates_hist,
    gates_hist_tables, gates_lag, layers_b, layers_futr, layers_futr_tables, layers_static, layers_static_tables,
    layers_lag, recurrent, upper_x, upper_h, upper_b, from_g, layer2, layer3, layer3_b, head, head_b, mix,
    mu1, mu1_b, mu2, mu2_b, out_mu, out_mu_b, sigma1, sigma1_a, sigma1_b, sigma2, sigma2_b, out_sigma,
    out_sigma_b, alphas, ridge, futr_tables, static_tables, hist_tables, lags,
    y, observed, futr, futr_cat, hist, hist_cat, static, static_cat, total, count,
    new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat, starts, lengths, skipped,
    now, sn, ss, mu, raw, scale, failed, lo, hi,
):  # fmt: skip
    """Series lo to hi."""
    J, E = len(alphas), shape.input_size
    base_gates, base_layers = np.empty_like(gates_b), np.empty_like(layers_b)
    U, d, first = len(recurrent), now.shape[2] - 1, len(layers_b) - layer2.shape[1]
    gates, c, g = np.empty_like(gates_b), np.empty(U, np.float32), np.zeros(U, np.float32)
    outputs, a = np.empty((E, U), np.float32), np.empty_like(base_layers)
    h = np.zeros(max(len(layer3_b), len(mu1), d + J), np.float32)  # and local means behind its d numbers
    quarters, a1, a2 = gates.reshape((4, U)), a[:first], a[first:]
    two, factors, extra = np.empty_like(head_b), np.empty_like(out_mu_b), np.empty_like(out_sigma_b)
    spread, beside = np.zeros(len(sigma1_a), np.float32), -(-J // DOUBLES) * DOUBLES
    theta, bias, local = np.zeros((-(-d // CHAINS) * CHAINS, beside)), np.zeros(beside), np.zeros(beside)
    spread_part, hidden, hidden2 = np.empty_like(sigma1_b), np.empty_like(mu1_b), np.empty_like(mu2_b)
    zero, one = np.float32(0.0), np.float32(1.0)
    for b in range(lo, hi):
        _add_inputs(gates_b, static, static_cat, b, gates_static, gates_static_tables, static_tables, base_gates)
        _add_inputs(layers_b, static, static_cat, b, layers_static, layers_static_tables, static_tables, base_layers)
        start = starts[b]
        s = _scale(shape, y, observed, new_y, new_observed, b, start, 0, total[b], count[b])
        scale[b] = s
        _encode(
            shape.transform, recurrent, gates_past, gates_lag, gates_futr, gates_futr_tables, gates_hist,
            gates_hist_tables, upper_x, upper_h, upper_b,
            futr_tables, hist_tables, lags, y, observed, futr, futr_cat, hist, hist_cat,
            new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat,
            b, start, 0, s, base_gates, gates, quarters, c, g, outputs,
        )  # fmt: skip
        add_product(base_layers, g, U, from_g, 0, NONE, base_layers)
        known = zero
        if shape.integration != HEAD:
            for j in range(J):
                good = True
                for i in range(d + 1):
                    good &= not np.isnan(now[b, j, i])
                for i in range(d):
                    theta[i, j] = now[b, j, i] if good else 0.0
                bias[j] = now[b, j, d] if good else 0.0
                failed[b] |= not good
                n = np.float32(sn[b, j])
                variance = np.float32(ss[b, j] / sn[b, j] if sn[b, j] > TINY else 0.0)
                known += n / (n + one) / np.float32(J)
                root = np.sqrt((variance * n + np.float32(shape.spread_prior)) / (n + one))
                spread[j] = min(max(root, np.float32(0.01)), np.float32(10.0)) if shape.use_variance else zero
        if PAPER <= shape.integration <= RESIDUAL:
            add_product(sigma1_b, spread, len(spread), sigma1_a, 0, NONE, spread_part)
        for k in range(mu.shape[1]):
            _decode(
                shape.transform, shape.season, layers_futr, layers_futr_tables, layers_lag, layer2, layer3,
                layer3_b, futr_tables, lags, y, observed, new_y, new_observed, new_futr, new_futr_cat,
                b, start, k, k + 1, s, base_layers, a, a1, a2, h,
            )  # fmt: skip
            location, more = zero, zero
            if len(head):
                add_product(head_b, h, len(head), head, 0, NONE, two)
                location, more = two[0], two[1]
            mixed = zero
            if J:
                add_product(bias, h, len(theta), theta, 0, NONE, local)
            if PAPER <= shape.integration <= RESIDUAL:
                add_product(spread_part, h, len(sigma1), sigma1, 0, zero, hidden)
                add_product(sigma2_b, hidden, len(sigma2), sigma2, 0, zero, hidden2)
                add_product(out_sigma_b, hidden2, len(out_sigma), out_sigma, 0, NONE, extra)
            for j in range(J):  # from here on h holds them, too
                h[d + j] = np.float32(local[j])
                mixed += h[d + j] * mix[j]
            if shape.integration == DIRECT:
                location, more = mixed, out_sigma_b[0]
                for j in range(J):
                    more += out_sigma[j, 0] * (np.log(spread[j]) if shape.use_variance else zero)
            elif shape.integration != HEAD:
                add_product(mu1_b, h, len(mu1), mu1, 0, zero, hidden)
                add_product(mu2_b, hidden, len(mu2), mu2, 0, zero, hidden2)
                add_product(out_mu_b, hidden2, len(out_mu), out_mu, 0, NONE, factors)
                if shape.integration == RESIDUAL:
                    more += known * extra[0]
                    for j in range(J):
                        location += (mix[j] + factors[j]) * h[d + j]
                else:
                    location, more = factors[0] + (mixed if shape.integration == SKIP else zero), extra[0]
            mu[b, k], raw[b, k] = location, more


@compile_kernel()  # sums this short are slower when they are vectorised
@no_type_check
def _solve(sxx, sxy, ridge, b, j, L, theta):
    """theta[b, j] = (sxx + ridge I)^-1 sxy by Cholesky, or NaN where that has no answer."""
    d, good = sxy.shape[2], True
    for i in range(d):
        for k in range(i + 1):
            total = sxx[b, j, i * d + k] + (ridge if i == k else 0.0)
            for q in range(k):
                total -= L[i, q] * L[k, q]
            if i == k:
                good &= total > 0.0
                L[i, i] = 1.0 / np.sqrt(total)
            else:
                L[i, k] = total * L[k, k]
        total = sxy[b, j, i]
        for q in range(i):
            total -= L[i, q] * theta[b, j, q]
        theta[b, j, i] = total * L[i, i]
    for i in range(d - 1, -1, -1):
        theta[b, j, i] *= L[i, i]
        good &= np.isfinite(theta[b, j, i])
        for q in range(i):
            theta[b, j, q] -= L[i, q] * theta[b, j, i]
    if not good:
        for i in range(d):
            theta[b, j, i] = np.nan


@_kernel
@no_type_check
def _outer(x, xx):
    """xx = x x^T."""
    for i in range(len(x)):
        for k in range(len(x)):
            xx[i, k] = x[i] * x[k]


@_kernel
@no_type_check
def _absorb(sxx, sxy, sn, ss, b, j, alpha, x, xx, y, residual, weight):
    """The statistics of one aging factor, one row on."""
    for i in range(len(xx)):
        sxx[b, j, i] = alpha * sxx[b, j, i] + weight * xx[i]
    for i in range(len(x)):
        sxy[b, j, i] = alpha * sxy[b, j, i] + weight * y * x[i]
    sn[b, j] = alpha * sn[b, j] + weight
    ss[b, j] = alpha * ss[b, j] + weight * residual * residual


@_kernel
@no_type_check
def _row(shape, head, head_b, h, z, scale, two):
    """What the cell fits, and the weight of the observation (`aru.models.aru.ARU._cell_rows`)."""
    if not len(head):
        return float(z), 1.0
    add_product(head_b, h, len(head), head, 0, NONE, two)
    mu, raw = two[0], two[1]
    sigma = (raw if raw > 20 else math.log1p(math.exp(raw))) + shape.min_sigma
    spread = sigma
    if shape.counts:
        size = abs(mu) + math.sqrt(mu * mu + shape.small_count)
        mu = np.float32(0.5 * (size if mu > 0 else shape.small_count / size))
        spread = math.sqrt(mu / scale + sigma * mu * mu)
    weight = 1.0
    if shape.robust:
        r = (z - mu) / spread
        weight = (shape.student_df + 1) / (shape.student_df + r * r)
    return float(z - mu if shape.integration == RESIDUAL else z), weight


@_kernel
@no_type_check
def _learn(
    shape,
    gates_b, gates_past, gates_futr, gates_futr_tables, gates_static, gates_static_tables, gates_hist,
    gates_hist_tables, gates_lag, layers_b, layers_futr, layers_futr_tables, layers_static, layers_static_tables,
    layers_lag, recurrent, upper_x, upper_h, upper_b, from_g, layer2, layer3, layer3_b, head, head_b, mix,
    mu1, mu1_b, mu2, mu2_b, out_mu, out_mu_b, sigma1, sigma1_a, sigma1_b, sigma2, sigma2_b, out_sigma,
    out_sigma_b, alphas, ridge, futr_tables, static_tables, hist_tables, lags,
    y, observed, futr, futr_cat, hist, hist_cat, static, static_cat, totals, counts,
    new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat, starts, lengths, skipped,
    sxx, sxy, sn, ss, theta, now, origin_g, origin_scale, steps, lo, hi,
):  # fmt: skip
    """Series lo to hi: what was known before is overwritten."""
    U, J, S, d, first = len(recurrent), len(alphas), shape.stride, sxy.shape[2], len(layers_b) - layer2.shape[1]
    base_gates, base, base_layers = np.empty_like(gates_b), np.empty_like(layers_b), np.empty_like(layers_b)
    gates, c, g = np.empty_like(gates_b), np.empty(U, np.float32), np.zeros(U, np.float32)
    outputs, a, h = np.empty((shape.input_size, U), np.float32), np.empty_like(layers_b), np.empty_like(layer3_b)
    quarters, a1, a2 = gates.reshape((4, U)), a[:first], a[first:]
    x, square, L, two = np.ones(d), np.zeros((d, d)), np.empty((d, d)), np.empty_like(head_b)
    xx = square.ravel()
    for b in range(lo, hi):
        n, start = lengths[b], starts[b]
        if n == 0:
            continue
        _add_inputs(gates_b, static, static_cat, b, gates_static, gates_static_tables, static_tables, base_gates)
        _add_inputs(layers_b, static, static_cat, b, layers_static, layers_static_tables, static_tables, base)
        total, count, passed, informed = totals[b], counts[b], steps[b], origin_scale[b] > 0.0
        scale = origin_scale[b] if informed else 1.0
        for u in range(origin_g.shape[1]):
            g[u] = origin_g[b, u]
        moved, solved = True, False  # whether `base_layers` lags behind g, and `now` is up to date
        for t in range(n):
            i = start + t
            if skipped[i]:
                passed += skipped[i]
                for j in range(J):
                    _absorb(sxx, sxy, sn, ss, b, j, alphas[j] ** skipped[i], x, xx, 0.0, 0.0, 0.0)
            ratio = new_y[i] / scale
            u, weight, seen = 0.0, 0.0, new_observed[i] and abs(ratio) < 1e9 and informed
            if seen:
                if moved:
                    add_product(base, g, U, from_g, 0, NONE, base_layers)
                    moved = False
                _decode(
                    shape.transform, shape.season, layers_futr, layers_futr_tables, layers_lag, layer2, layer3,
                    layer3_b, futr_tables, lags, y, observed, new_y, new_observed, new_futr, new_futr_cat,
                    b, start, t, passed % S + 1, scale, base_layers, a, a1, a2, h,
                )  # fmt: skip
                u, weight = _row(shape, head, head_b, h, np.float32(_transform(shape.transform, ratio)), scale, two)
                for k in range(d - 1):
                    x[k] = h[k]
                _outer(x, square)
            for j in range(J):
                residual = u
                if seen:
                    for k in range(d):
                        residual -= theta[b, j, k] * x[k]
                _absorb(sxx, sxy, sn, ss, b, j, alphas[j], x, xx, u, residual, weight)
            solved = False
            passed += 1
            if new_observed[i]:
                total += abs(new_y[i])
                count += 1
            if passed % S == 0:  # a new origin
                scale = _scale(shape, y, observed, new_y, new_observed, b, start, t + 1, total, count)
                _encode(
                    shape.transform, recurrent, gates_past, gates_lag, gates_futr, gates_futr_tables, gates_hist,
                    gates_hist_tables, upper_x, upper_h, upper_b,
                    futr_tables, hist_tables, lags, y, observed, futr, futr_cat, hist, hist_cat,
                    new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat,
                    b, start, t + 1, scale, base_gates, gates, quarters, c, g, outputs,
                )  # fmt: skip
                for j in range(J):
                    _solve(sxx, sxy, ridge[j], b, j, L, now)
                    for k in range(d):
                        theta[b, j, k] = 0.0 if np.isnan(now[b, j, 0]) else now[b, j, k]
                moved, solved, informed = True, True, count >= shape.enough
        if not solved:
            for j in range(J):
                _solve(sxx, sxy, ridge[j], b, j, L, now)
        for u in range(origin_g.shape[1]):
            origin_g[b, u] = g[u]
        origin_scale[b] = scale if informed else 0.0
