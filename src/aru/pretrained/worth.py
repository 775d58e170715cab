"""What covariates are worth, as people read it: effects of their values, in percent or in units of y."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from aru.data.columns import Floats as Array
from aru.data.covariates import HOLIDAY, CategoryColumn, Factor, NumberColumn
from aru.data.schema import Schema
from aru.pretrained.effects import LOGS, CommonEffects, EffectSums, LocalFits

INTERVAL = 0.8  # probability that an effect lies between `low` and `high`
AT_ONCE = 2**8  # series whose covariances are computed at a time
OTHERS, OTHER_DAYS = "(others)", "other days"


class Contrast(NamedTuple):
    """One value of a covariate compared with another: the difference of each regressor, averaged over the calendar."""

    covariate: str
    value: str
    against: str
    difference: Array  # (k,)


class Worth(NamedTuple):
    """The columns of `effects`, one row for each series and contrast; without series one for each contrast."""

    effect: Array
    low: Array
    high: Array
    typical: Array
    share: Array


def contrasts(schema: Schema) -> list[Contrast]:
    """Of a number: one standard deviation above the median. Of a flag: 1 against 0. Else: each level against the first.

    Products with the weekday count as on an average day, averages of numbers as if the number had stayed.
    """
    columns: list[NumberColumn | CategoryColumn] = [
        c for group in (schema.futr, schema.hist) for part in group for c in part
    ]
    found = []
    for column in columns:
        pairs = _of_number(column) if isinstance(column, NumberColumn) else _of_category(column, schema)
        for value, against, sign, chosen in pairs:
            difference = sign * _difference(schema, column.name, chosen)
            if difference.any():
                found.append(Contrast(column.name, value, against, difference))
    return found + _of_holidays(schema)


def _of_holidays(schema: Schema) -> list[Contrast]:
    """Each holiday that came often, any other one, and the days beside them, against other days."""
    kinds = {"holiday": "any other", "holiday_eve": "(day before)", "holiday_next": "(day after)"}
    factors = [r.factors[0] for r in schema.regressors if len(r.factors) == 1 and r.factors[0].kind in kinds]
    found = []
    for factor in sorted(factors, key=lambda f: (not f.level, list(kinds).index(f.kind))):
        difference = _difference(schema, "", factor)
        if factor.level:
            difference = difference + _difference(schema, "", Factor("holiday"))
        found.append(Contrast(HOLIDAY, factor.level or kinds[factor.kind], OTHER_DAYS, difference))
    return found


def worth_of_panel(sums: EffectSums, traits: Array, common: CommonEffects, schema: Schema) -> Worth:
    """Of a new series, and how it differs between series. `sums` are those of the panel, or of a sample of it."""
    listed, unit = contrasts(schema), float(common.unit)
    weights = _stacked(listed, schema)
    local = LocalFits.of(sums, traits, common)
    begun = local.mean @ weights.T  # by their traits
    middle = begun.mean(0) * unit
    deviation = np.sqrt(begun.var(0) + weights**2 @ common.spread.numpy()) * unit
    total, weight, all_ = _moved(local, listed, schema), *_sizes(sums, common, local)
    typical = np.sqrt(total.sum(0) / max(weight.sum(), 1e-30)) * unit
    factors = _of_value(sums)
    factor = np.array(np.median(factors) if len(factors) else 1.0)
    return _readable(common.way, factor, middle, deviation, typical, total.sum(0) / max(all_.sum(), 1e-30))


def worth_of_series(sums: EffectSums, traits: Array, common: CommonEffects, schema: Schema) -> Worth:
    """Of each series."""
    listed, n = contrasts(schema), len(traits)
    cuts = [slice(at, at + AT_ONCE) for at in range(0, max(n, 1), AT_ONCE)]
    parts = [_part(EffectSums(*(v[cut] for v in sums)), traits[cut], common, schema, listed) for cut in cuts]
    return Worth(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _part(sums: EffectSums, traits: Array, common: CommonEffects, schema: Schema, listed: Sequence[Contrast]) -> Worth:
    local, weights = LocalFits.of(sums, traits, common), _stacked(listed, schema)
    middle = local.theta @ weights.T * local.unit[:, None]
    deviation = np.sqrt(np.maximum(local.variances(weights), 0))
    weight, all_ = (np.maximum(v, 1e-30)[:, None] for v in _sizes(sums, common, local))
    total = _moved(local, listed, schema)
    typical = np.sqrt(total / weight) * local.unit[:, None]
    factor = np.repeat(_of_value(sums), len(listed))
    return _readable(common.way, factor, *(v.ravel() for v in (middle, deviation, typical, total / all_)))


def _of_value(sums: EffectSums) -> Array:
    """(1 + y) / y at the usual level y of each series: effects multiply 1 + y, and are read as percentages of y."""
    level = np.expm1(sums.level[:, sums.xz.shape[-1] + LOGS].cpu().numpy())
    out: Array = np.where(level > 0, 1 + 1 / np.where(level > 0, level, 1.0), 1.0)
    return out


def _readable(way: int, factor: Array, middle: Array, deviation: Array, typical: Array, share: Array) -> Worth:
    """Percentages where effects multiply, units of y else."""
    away = NormalDist().inv_cdf((1 + INTERVAL) / 2) * deviation
    found = Worth(middle, middle - away, middle + away, typical, 100 * np.clip(share, 0, 1))
    if way == LOGS:
        percent = [100 * factor * np.expm1(np.clip(value, -50, 50)) for value in found[:-1]]
        found = Worth._make([*percent, found.share])
    return found


def _moved(local: LocalFits, listed: Sequence[Contrast], schema: Schema) -> Array:
    """(series, contrast): sum of squares of what the covariate of a contrast adds, in squared units."""
    columns: dict[str, Array] = {}
    for name in dict.fromkeys(contrast.covariate for contrast in listed):
        own = np.array([r.column == name for r in schema.regressors])
        theta = np.where(own, local.theta, 0.0)
        columns[name] = np.maximum((np.matmul(local.xx, theta[..., None])[..., 0] * theta).sum(1), 0)
    return np.stack([columns[c.covariate] for c in listed], 1) if listed else np.zeros((len(local.unit), 0))


def _sizes(sums: EffectSums, common: CommonEffects, local: LocalFits) -> tuple[Array, Array]:
    """Sum of the weights of each series, and of its squared deviations in squared units."""
    zz = sums.zz[:, common.way].cpu().double().numpy()
    return sums.weight.cpu().double().numpy(), zz / local.unit**2


def _stacked(listed: Sequence[Contrast], schema: Schema) -> Array:
    return np.array([c.difference for c in listed]).reshape(len(listed), len(schema.regressors))


def _of_number(column: NumberColumn) -> list[tuple[str, str, float, Factor]]:
    """Value, reference, their difference in units, and the factor that tells them apart."""
    middle = column.middle or 0.0
    high, low = (column.high, column.low) if column.two_values else (middle + column.unit, middle)
    ends = column.encode(np.array([high, low]))[:, 0]
    return [(_digits(high), _digits(low), float(ends[0] - ends[1]), Factor("number", column.name))]


def _of_category(column: CategoryColumn, schema: Schema) -> list[tuple[str, str, float, Factor]]:
    factors = [f for r in schema.regressors if len(r.factors) == 1 for f in r.factors if f.column == column.name]
    against = _label(column, column.values[0])
    if column.boolean and against.casefold() == "true":  # true against false, whichever is more frequent
        return [(against, f.level, -1.0, f) for f in factors]
    return [(_label(column, f.level) if f.kind == "level" else OTHERS, against, 1.0, f) for f in factors]


def _label(column: CategoryColumn, value: str) -> str:
    return _digits(float(value)) if column.levels else value


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"


def _difference(schema: Schema, name: str, chosen: Factor) -> Array:
    """How much each regressor moves if the chosen factor rises by one."""
    middles = {r.factors[0]: r.middle for r in schema.regressors if len(r.factors) == 1}
    out = np.zeros(len(schema.regressors))
    for i, regressor in enumerate(schema.regressors):
        first, *others = regressor.factors
        if first == chosen or (first.kind == chosen.kind == "number" and first.column == name):
            share = np.prod([middles.get(other, 0.0) for other in others])  # waves are 0 on average
            out[i] = share / regressor.unit
    return out
