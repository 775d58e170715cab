"""The network and the cell beside it, one series after the other, without gradients: compiled by Numba.

What the modules of `aru.models` compute for a batch, operation by operation, is one pass over each series here: nothing
is concatenated, unfolded or kept. Two things are done ahead (`aru.models.compiled`): an embedding that only enters a
product is replaced by that product, and widths are padded with zeros to a multiple of LANES, so that loops over units
vectorise. An answer does not depend on the series beside it, to the bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, no_type_check

import numpy as np

from aru.kernels.compiled import compile_kernel, share

LANES = 16
FLOATS_A_SERIES = 2**13  # work of a series as `share` counts it
Array = Any
_kernel = compile_kernel("reassoc", "nsz", "arcp")

# How local predictions join the network (`aru.models.joint`); HEAD: there are none.
HEAD, PAPER, SKIP, RESIDUAL, DIRECT = range(5)
TRANSFORMS = (None, "log1p", "asinh")


class Shape(NamedTuple):
    """Numbers that the kernels need besides weights."""

    input_size: int
    stride: int
    season: int  # 0: none
    level: bool  # scaler="level"
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
    """Rows are inputs, columns outputs: "gates" of the encoder, "layers" 1 and 2 of the decoder side by side.

    Gates are ordered input, forget, output, cell, the first three negated and the last times -2: `_lstm` says why.
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
    layers_futr: Array
    layers_futr_tables: Array
    layers_static: Array
    layers_static_tables: Array
    layers_lag: Array
    futr_offsets: Array  # first row of each column's table
    static_offsets: Array
    hist_offsets: Array
    lags: Array
    recurrent: Array
    upper_x: Array  # further layers of the encoder: (layer, units, gates)
    upper_h: Array
    upper_b: Array
    from_g: Array
    from_g_b: Array
    layer2: Array
    layer2_b: Array
    layer3: Array
    layer3_b: Array
    head: Array  # (2, dim) the global head: rows mu and raw spread
    head_b: Array
    alphas: Array
    ridge: Array
    mix: Array
    ff1: Array  # first layers of ff_mu and ff_sigma, side by side
    ff1_b: Array
    ff1_m: Array  # the part of ff_mu's that local means enter
    ff1_a: Array  # the part of ff_sigma's that local spreads enter
    mu2: Array
    mu2_b: Array
    sigma2: Array
    sigma2_b: Array
    out_mu: Array  # (outputs, width)
    out_mu_b: Array
    out_sigma: Array  # (width,)
    out_sigma_b: Array


class Context(NamedTuple):
    """What is kept of each series (`aru.state.SeriesState`)."""

    y: Array
    observed: Array
    futr: Array
    futr_cat: Array
    hist: Array
    hist_cat: Array
    static: Array
    static_cat: Array
    total: Array
    count: Array  # type: ignore[assignment]  # hides tuple.count


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


def forecast(
    shape: Shape, w: Weights, context: Context, new: New, learned: Learned, h: int
) -> tuple[Array, Array, Array, Array]:
    """Location and raw spread of the `h` rows of each series, (series, h), its scale, and whether its fit failed."""
    n = len(context.y)
    mu, raw = np.empty((n, h), np.float32), np.empty((n, h), np.float32)
    scale, failed = np.empty(n), np.zeros(n, np.bool_)
    share(
        lambda lo, hi: _forecast(shape, w, context, new, learned, mu, raw, scale, failed, lo, hi),
        n, FLOATS_A_SERIES, 1,
    )  # fmt: skip
    return mu, raw, scale, failed


def learn(shape: Shape, w: Weights, context: Context, new: New, learned: Learned, steps: Array) -> Learned:
    """What is known of each series after all of its rows; `steps` passed before them since its first value."""
    after = Learned._make(map(np.copy, learned))
    share(lambda lo, hi: _learn(shape, w, context, new, after, steps, lo, hi), len(steps), FLOATS_A_SERIES, 1)
    return after


@_kernel
@no_type_check
def _exp(x, bits):
    """x <- exp(x), to float32's precision: 2^k times a polynomial of the rest. Beyond 43 nothing here changes."""
    for i in range(len(x)):
        v = min(max(x[i], np.float32(-43.0)), np.float32(43.0))
        k = np.floor(v * np.float32(1.4426950408889634) + np.float32(0.5))
        r = v - k * np.float32(0.693359375)
        r = r - k * np.float32(-2.12194440e-4)
        p = np.float32(1.9875691500e-4)
        p = p * r + np.float32(1.3981999507e-3)
        p = p * r + np.float32(8.3334519073e-3)
        p = p * r + np.float32(4.1665795894e-2)
        p = p * r + np.float32(1.6666665459e-1)
        p = p * r + np.float32(5.0000001201e-1)
        x[i] = p * r * r + r + np.float32(1.0)
        bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
    power = bits.view(np.float32)
    for i in range(len(x)):
        x[i] *= power[i]


@_kernel
@no_type_check
def _add(x, w, out):
    """out += x w, several rows of w at a time, so that out is not read and written for each."""
    n, m, i = len(x), len(out), 0
    while i + 8 <= n:
        a, b, c, d, e, f, g, h = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4], x[i + 5], x[i + 6], x[i + 7]
        A, B, C, D, E, F, G, H = w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
        for o in range(m):
            out[o] += a * A[o] + b * B[o] + c * C[o] + d * D[o] + e * E[o] + f * F[o] + g * G[o] + h * H[o]
        i += 8
    while i + 2 <= n:
        a, b = x[i], x[i + 1]
        A, B = w[i], w[i + 1]
        for o in range(m):
            out[o] += a * A[o] + b * B[o]
        i += 2
    if i < n:
        a, A = x[i], w[i]
        for o in range(m):
            out[o] += a * A[o]


@_kernel
@no_type_check
def _add_row(factor, row, out):
    for o in range(len(out)):
        out[o] += factor * row[o]


@_kernel
@no_type_check
def _dot(x, w):
    total = np.float32(0.0)
    for i in range(len(w)):
        total += x[i] * w[i]
    return total


@_kernel
@no_type_check
def _relu(x):
    for i in range(len(x)):
        x[i] = max(x[i], np.float32(0.0))


@_kernel
@no_type_check
def _transform(kind, ratio):
    if kind == 1:
        return math.log1p(max(ratio, 0.0))
    return math.asinh(ratio) if kind == 2 else ratio


@_kernel
@no_type_check
def _add_value(shape, y, observed, scale, w, row, out):
    """Add what a past value and its presence, rows `row` and the next of w, contribute."""
    ratio = y / scale
    if observed and abs(ratio) < 1e9:
        z = np.float32(_transform(shape.transform, ratio))
        one = w[row + 1]
        two = w[row]
        for o in range(len(out)):
            out[o] += z * two[o] + one[o]


@_kernel
@no_type_check
def _add_inputs(numbers, codes, w, tables, offsets, out):
    """Add what covariates contribute: numbers by a product, categories by their row of a table."""
    _add(numbers, w, out)
    for c in range(len(offsets)):
        row = tables[offsets[c] + codes[c]]
        for o in range(len(out)):
            out[o] += row[o]


@_kernel
@no_type_check
def _value(context, new, b, t):
    """y and whether it was observed, `t` rows after the context of series b; negative: inside it."""
    if t >= 0:
        at = new.starts[b] + t
        return new.y[at], new.observed[at]
    at = context.y.shape[1] + t
    return context.y[b, at], context.observed[b, at]


@_kernel
@no_type_check
def _lstm(gates, recurrent, c, h, bits):
    """One step. `gates` hold the input's part, and are overwritten.

    With e = exp of the gates as they are stored, sigmoid is 1 / (1 + e) and tanh is (1 - e) / (1 + e).
    """
    U = len(c)
    one, two = np.float32(1.0), np.float32(2.0)
    _add(h, recurrent, gates)
    _exp(gates, bits)
    i, f, o, g = gates[:U], gates[U : 2 * U], gates[2 * U : 3 * U], gates[3 * U :]
    for u in range(U):
        c[u] = c[u] / (one + f[u]) + (one - g[u]) / ((one + g[u]) * (one + i[u]))
        h[u] = -two * c[u]
    _exp(h, bits)
    for u in range(U):
        h[u] = (one - h[u]) / ((one + h[u]) * (one + o[u]))


@_kernel
@no_type_check
def _scale(shape, context, new, b, t, total, count):
    """s(o) at the origin after `t` rows (`aru.windows.scales`)."""
    if count <= 0:
        return shape.typical
    overall = total / count
    if not shape.level:
        return shape.unit + overall
    near, n = 0.0, 0
    for back in range(t - shape.input_size, t):
        y, observed = _value(context, new, b, back)
        if observed:
            near += abs(y)
            n += 1
    return (near + overall) / (n + 1) + 1e-3 * shape.unit


@_kernel
@no_type_check
def _encode(shape, w, context, new, b, t, scale, base, outputs, g):
    """g of the context that ends after `t` rows; `base` is what every row adds to the gates."""
    E, U = shape.input_size, len(w.recurrent)
    gates, bits = np.empty(4 * U, np.float32), np.empty(4 * U, np.int32)
    c, h = np.zeros(U, np.float32), np.zeros(U, np.float32)
    for row in range(E):
        at = t - E + row
        gates[:] = base
        y, observed = _value(context, new, b, at)
        _add_value(shape, y, observed, scale, w.gates_past, 0, gates)
        for k in range(len(w.lags)):
            y, observed = _value(context, new, b, at - w.lags[k])
            _add_value(shape, y, observed, scale, w.gates_lag, 2 * k, gates)
        if at >= 0:
            i = new.starts[b] + at
            _add_inputs(new.futr[i], new.futr_cat[i], w.gates_futr, w.gates_futr_tables, w.futr_offsets, gates)
            _add_inputs(new.hist[i], new.hist_cat[i], w.gates_hist, w.gates_hist_tables, w.hist_offsets, gates)
        else:
            i = E + at
            _add_inputs(context.futr[b, i], context.futr_cat[b, i], w.gates_futr, w.gates_futr_tables, w.futr_offsets, gates)
            _add_inputs(context.hist[b, i], context.hist_cat[b, i], w.gates_hist, w.gates_hist_tables, w.hist_offsets, gates)
        _lstm(gates, w.recurrent, c, h, bits)
        outputs[row] = h
    for layer in range(len(w.upper_b)):
        c[:], h[:] = 0, 0
        for row in range(E):
            gates[:] = w.upper_b[layer]
            _add(outputs[row], w.upper_x[layer], gates)
            _lstm(gates, w.upper_h[layer], c, h, bits)
            outputs[row] = h
    g[:] = h


@_kernel
@no_type_check
def _decode(shape, w, context, new, b, t, lead, scale, base, from_g, a, h):
    """h of row `t`, the `lead`-th after an origin that added `from_g`; `base` is what every row adds."""
    i, first = new.starts[b] + t, len(w.from_g_b)
    a[:] = base
    _add_inputs(new.futr[i], new.futr_cat[i], w.layers_futr, w.layers_futr_tables, w.futr_offsets, a)
    for k in range(len(w.lags)):
        y, observed = _value(context, new, b, t - w.lags[k])
        _add_value(shape, y, observed, scale, w.layers_lag, 2 * k, a)
    if shape.season:
        back = -(-lead // shape.season) * shape.season
        y, observed = _value(context, new, b, t - back)
        _add_value(shape, y, observed, scale, w.layers_lag, 2 * len(w.lags), a)
    a1, a2 = a[:first], a[first:]
    for o in range(first):
        a1[o] = max(a1[o] + from_g[o], np.float32(0.0))
    _add(a1, w.layer2, a2)
    for o in range(len(a2)):
        a2[o] = max(a2[o] + w.layer2_b[o], np.float32(0.0))
    h[:] = w.layer3_b
    _add(a2, w.layer3, h)
    _relu(h)


@_kernel
@no_type_check
def _every_row(w, context, b, gates, layers):
    """What each row of a series adds to the gates and to the decoder's layers, whatever its time."""
    gates[:], layers[:] = w.gates_b, 0
    numbers, codes = context.static[b], context.static_cat[b]
    _add_inputs(numbers, codes, w.gates_static, w.gates_static_tables, w.static_offsets, gates)
    _add_inputs(numbers, codes, w.layers_static, w.layers_static_tables, w.static_offsets, layers)


@_kernel
@no_type_check
def _forecast(shape, w, context, new, learned, mu, raw, scale, failed, lo, hi):
    """Series lo to hi."""
    U, dim, J = len(w.recurrent), len(w.layer3_b), len(w.alphas)
    g, from_g = np.empty(U, np.float32), np.empty(len(w.from_g_b), np.float32)
    gates, layers = np.empty(len(w.gates_b), np.float32), np.empty(w.layers_futr.shape[1], np.float32)
    a = np.empty_like(layers)
    h, m, theta = np.empty(dim, np.float32), np.empty(J, np.float32), np.empty(learned.now.shape[1:])
    spread, spread_part = np.zeros(J, np.float32), np.empty(len(w.sigma2_b), np.float32)
    hidden, hidden_mu = np.empty(len(w.ff1_b), np.float32), np.empty(len(w.mu2_b), np.float32)
    hidden_sigma, outputs = np.empty(len(w.sigma2_b), np.float32), np.empty((shape.input_size, U), np.float32)
    one, width = np.float32(1.0), len(w.mu2_b)
    for b in range(lo, hi):
        _every_row(w, context, b, gates, layers)
        s = _scale(shape, context, new, b, 0, context.total[b], context.count[b])
        scale[b] = s
        _encode(shape, w, context, new, b, 0, s, gates, outputs, g)
        from_g[:] = w.from_g_b
        _add(g, w.from_g, from_g)
        known = np.float32(0.0)
        if shape.integration != HEAD:
            for j in range(J):
                good = True
                for i in range(theta.shape[1]):
                    good &= not np.isnan(learned.now[b, j, i])
                for i in range(theta.shape[1]):
                    theta[j, i] = learned.now[b, j, i] if good else 0.0
                failed[b] |= not good
                sn = np.float32(learned.sn[b, j])
                variance = np.float32(learned.ss[b, j] / learned.sn[b, j] if learned.sn[b, j] > 2.3e-308 else 0.0)
                known += sn / (sn + one) / np.float32(J)
                if shape.use_variance:
                    root = np.sqrt((variance * sn + np.float32(shape.spread_prior)) / (sn + one))
                    spread[j] = min(max(root, np.float32(0.01)), np.float32(10.0))
            spread_part[:] = w.ff1_b[width:]
            _add(spread, w.ff1_a, spread_part)
        for k in range(mu.shape[1]):
            _decode(shape, w, context, new, b, k, k + 1, s, layers, from_g, a, h)
            location, width_raw = np.float32(0.0), np.float32(0.0)
            if len(w.head):
                location, width_raw = _dot(h, w.head[0]) + w.head_b[0], _dot(h, w.head[1]) + w.head_b[1]
            if shape.integration == HEAD:
                mu[b, k], raw[b, k] = location, width_raw
                continue
            mixed = np.float32(0.0)
            for j in range(J):
                local = theta[j, theta.shape[1] - 1]
                for i in range(theta.shape[1] - 1):
                    local += theta[j, i] * h[i]
                m[j] = np.float32(local)
                mixed += m[j] * w.mix[j]
            if shape.integration == DIRECT:
                total = w.out_sigma_b[0]
                for j in range(J):
                    total += w.out_sigma[j] * (np.log(spread[j]) if shape.use_variance else spread[j])
                mu[b, k], raw[b, k] = mixed, total
                continue
            hidden[:width], hidden[width:] = w.ff1_b[:width], spread_part
            _add(h, w.ff1, hidden)
            _add(m, w.ff1_m, hidden[:width])
            _relu(hidden)
            hidden_mu[:], hidden_sigma[:] = w.mu2_b, w.sigma2_b
            _add(hidden[:width], w.mu2, hidden_mu)
            _add(hidden[width:], w.sigma2, hidden_sigma)
            _relu(hidden_mu)
            _relu(hidden_sigma)
            more = _dot(hidden_sigma, w.out_sigma) + w.out_sigma_b[0]
            if shape.integration == RESIDUAL:
                for j in range(J):
                    location += (w.mix[j] + _dot(hidden_mu, w.out_mu[j]) + w.out_mu_b[j]) * m[j]
                mu[b, k], raw[b, k] = location, width_raw + known * more
            else:
                location = _dot(hidden_mu, w.out_mu[0]) + w.out_mu_b[0]
                mu[b, k], raw[b, k] = (location + mixed if shape.integration == SKIP else location), more


@_kernel
@no_type_check
def _solve(sxx, sxy, ridge, L, theta):
    """theta = (sxx + ridge I)^-1 sxy by Cholesky, or NaN where that has no answer."""
    d, good = len(sxy), True
    for i in range(d):
        for j in range(i + 1):
            total = sxx[i, j] + (ridge if i == j else 0.0)
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                good &= total > 0.0
                L[i, i] = 1.0 / np.sqrt(total)
            else:
                L[i, j] = total * L[j, j]
        total = sxy[i]
        for k in range(i):
            total -= L[i, k] * theta[k]
        theta[i] = total * L[i, i]
    for i in range(d - 1, -1, -1):
        theta[i] *= L[i, i]
        good &= np.isfinite(theta[i])
        for k in range(i):
            theta[k] -= L[i, k] * theta[i]
    if not good:
        theta[:] = np.nan


@_kernel
@no_type_check
def _absorb(alpha, sxx, sxy, x, y, weight):
    """The statistics of one aging factor, one row on."""
    d = len(x)
    for i in range(d):
        wx, row = weight * x[i], sxx[i]
        for k in range(d):
            row[k] = alpha * row[k] + wx * x[k]
        sxy[i] = alpha * sxy[i] + wx * y


@_kernel
@no_type_check
def _row(shape, w, h, z, scale):
    """What the cell fits, and the weight of the observation (`aru.models.aru.ARU._cell_rows`)."""
    if not len(w.head):
        return float(z), 1.0
    mu = _dot(h, w.head[0]) + w.head_b[0]
    raw = _dot(h, w.head[1]) + w.head_b[1]
    sigma = (raw if raw > 20 else np.log1p(np.exp(raw))) + np.float32(shape.min_sigma)
    spread = sigma
    if shape.counts:
        size = abs(mu) + np.sqrt(mu * mu + np.float32(shape.small_count))
        mu = np.float32(0.5) * (size if mu > 0 else np.float32(shape.small_count) / size)
        spread = np.float32(np.sqrt(mu / scale + sigma * mu * mu))
    weight = 1.0
    if shape.robust:
        r = (z - mu) / spread
        weight = np.float32((shape.student_df + 1) / (shape.student_df + r * r))
    return float(z - mu if shape.integration == RESIDUAL else z), float(weight)


@_kernel
@no_type_check
def _learn(shape, w, context, new, after, steps, lo, hi):
    """Series lo to hi: `after` holds what was known before, and is overwritten."""
    U, dim, J, S = len(w.recurrent), len(w.layer3_b), len(w.alphas), shape.stride
    g, from_g = np.empty(U, np.float32), np.empty(len(w.from_g_b), np.float32)
    gates, layers = np.empty(len(w.gates_b), np.float32), np.empty(w.layers_futr.shape[1], np.float32)
    a = np.empty_like(layers)
    h, x = np.empty(dim, np.float32), np.empty(after.sxy.shape[2])
    L, outputs = np.empty(after.sxx.shape[2:]), np.empty((shape.input_size, U), np.float32)
    for b in range(lo, hi):
        n = new.lengths[b]
        if n == 0:
            continue
        _every_row(w, context, b, gates, layers)
        sxx, sxy, sn, ss = after.sxx[b], after.sxy[b], after.sn[b], after.ss[b]
        theta, now = after.theta[b], after.now[b]
        total, count, passed = context.total[b], context.count[b], steps[b]
        g[:], scale = after.g[b], after.scale[b]
        fresh = False  # whether `from_g` belongs to g
        solved = False  # whether `theta` belongs to the statistics
        for t in range(n):
            at = new.starts[b] + t
            if new.skipped[at]:
                passed += new.skipped[at]
                for j in range(J):
                    kept = w.alphas[j] ** new.skipped[at]
                    sxx[j] *= kept
                    sxy[j] *= kept
                    sn[j] *= kept
                    ss[j] *= kept
            if t == 0 or new.skipped[at]:
                begun = count > 0
            if not fresh:
                from_g[:] = w.from_g_b
                _add(g, w.from_g, from_g)
                fresh = True
            y, observed = new.y[at], new.observed[at]
            ratio = y / scale
            seen = observed and abs(ratio) < 1e9 and begun
            weight, u = 0.0, 0.0
            x[:] = 0.0
            if seen:
                _decode(shape, w, context, new, b, t, passed % S + 1, scale, layers, from_g, a, h)
                for i in range(len(x) - 1):
                    x[i] = h[i]
                x[len(x) - 1] = 1.0
                z = np.float32(_transform(shape.transform, ratio))
                u, weight = _row(shape, w, h, z, scale)
            for j in range(J):
                residual = u
                for i in range(len(x)):
                    residual -= theta[j, i] * x[i]
                _absorb(w.alphas[j], sxx[j], sxy[j], x, u, weight)
                sn[j] = w.alphas[j] * sn[j] + weight
                ss[j] = w.alphas[j] * ss[j] + weight * residual * residual
            solved = False
            passed += 1
            if observed:
                total += abs(y)
                count += 1
            if passed % S == 0:
                scale = _scale(shape, context, new, b, t + 1, total, count)
                _encode(shape, w, context, new, b, t + 1, scale, gates, outputs, g)
                for j in range(J):
                    _solve(sxx[j], sxy[j], w.ridge[j], L, now[j])
                    theta[j] = now[j]
                    if np.isnan(theta[j, 0]):
                        theta[j] = 0.0
                fresh, solved, begun = False, True, count > 0
        if not solved:
            for j in range(J):
                _solve(sxx[j], sxy[j], w.ridge[j], L, now[j])
        after.g[b], after.scale[b] = g, scale


class Rows(NamedTuple):
    """Rows of a context, or new ones, all of their fields."""

    ds: Array
    y: Array
    observed: Array
    futr: Array
    futr_cat: Array
    hist: Array
    hist_cat: Array


class Clock(NamedTuple):
    """Latest time, steps since the first value, sum of |y| and number of observations of each series."""

    last: Array
    steps: Array
    total: Array
    count: Array  # type: ignore[assignment]  # hides tuple.count


def move_on(old: Rows, clock: Clock, new: Rows, starts: Array, lengths: Array, skipped: Array) -> tuple[Rows, Clock]:
    """The latest rows of each series after new ones, as many as before, and its clock."""
    rows, after = Rows._make(map(np.empty_like, old)), Clock._make(map(np.copy, clock))
    work = old.y.shape[1] * (4 + sum(v.shape[2] for v in old[3:]))
    share(
        lambda lo, hi: _move_on(old, new, starts, lengths, skipped, rows, after, lo, hi), len(old.y), work, 1
    )
    return rows, after


@_kernel
@no_type_check
def _move_on(old, new, starts, lengths, skipped, rows, clock, lo, hi):
    """Series lo to hi."""
    for b in range(lo, hi):
        first, end = starts[b], starts[b] + lengths[b]
        for i in range(first, end):
            clock.steps[b] += 1 + skipped[i]
            clock.last[b] = new.ds[i]
            if new.observed[i]:
                clock.total[b] += abs(new.y[i])
                clock.count[b] += 1
        _latest(old.ds[b], new.ds, first, end, rows.ds[b])
        _latest(old.y[b], new.y, first, end, rows.y[b])
        _latest(old.observed[b], new.observed, first, end, rows.observed[b])
        _latest(old.futr[b], new.futr, first, end, rows.futr[b])
        _latest(old.futr_cat[b], new.futr_cat, first, end, rows.futr_cat[b])
        _latest(old.hist[b], new.hist, first, end, rows.hist[b])
        _latest(old.hist_cat[b], new.hist_cat, first, end, rows.hist_cat[b])


@_kernel
@no_type_check
def _latest(old, new, first, end, rows):
    size = len(rows)
    kept = max(size - (end - first), 0)
    for t in range(kept):
        rows[t] = old[size - kept + t]
    for t in range(kept, size):
        rows[t] = new[end - size + t]
