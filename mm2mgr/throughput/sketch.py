"""Rates in logarithmic buckets, so that percentiles of hours merge into percentiles of any window.

Bucket k holds rates r with γ^k ≤ r < γ^(k+1), γ = 1.02/0.98, and stands for 2·γ^(k+1)/(γ+1): at most 2 % from any rate
in it. Weights are milliseconds; rates under a thousandth per second are zero and have a bucket of their own.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RELATIVE_ERROR = 0.02
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = float(np.log(_GAMMA))
_SMALLEST = 1e-3
ZERO = int(np.floor(np.log(_SMALLEST) / _LOG_GAMMA)) - 1
_SERIES_AT_ONCE = 4096  # one histogram of 4096 series fits a cache


def bucket_of(rates: Floats) -> npt.NDArray[np.int16]:
    """Return the bucket of each rate (per second, not negative)."""
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log(rates) / _LOG_GAMMA)
    return np.where(rates < _SMALLEST, ZERO, exponent).astype(np.int16)


def rate_of(buckets: npt.NDArray[np.integer]) -> Floats:
    """Return the rate that each bucket stands for."""
    return np.where(buckets <= ZERO, 0.0, 2 * np.exp((buckets + 1.0) * _LOG_GAMMA) / (_GAMMA + 1))


def shifted(buckets: npt.NDArray[np.integer], factors: Floats) -> Ints:
    """Return the buckets after every rate is multiplied by its factor (positive); rounding to a bucket costs another 2 %."""
    moved = buckets + np.rint(np.log(factors) / _LOG_GAMMA)
    return np.where(buckets <= ZERO, ZERO, np.maximum(moved, ZERO)).astype(np.int64)


def merged(series: Ints, lengths: Ints, buckets: Ints, weights_ms: Ints) -> tuple[Ints, Ints, Ints]:
    """Add up equal buckets of each series: (series, bucket, weight), ordered by series and bucket.

    Sketches lie end to end in `buckets` and `weights_ms`; each has its length and its series, a small number from 0.
    """
    if not len(buckets):
        return series[:0], buckets, weights_ms
    low, span = int(buckets.min()), int(np.ptp(buckets)) + 1
    order = np.argsort(series, kind="stable")
    owner, sizes = series[order], lengths[order]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) + np.repeat((np.cumsum(lengths) - lengths)[order] - (ends - sizes), sizes)
    keys = np.repeat(owner % _SERIES_AT_ONCE * span - low, sizes) + buckets[rows]
    weights = weights_ms[rows]
    blocks = np.flatnonzero(np.diff(owner // _SERIES_AT_ONCE, prepend=-1))
    cuts = np.append((ends - sizes)[blocks], ends[-1]).tolist()
    found = []
    for block, (start, end) in zip((owner[blocks] // _SERIES_AT_ONCE).tolist(), pairwise(cuts), strict=True):
        sums = np.bincount(keys[start:end], weights=weights[start:end])
        used = np.flatnonzero(sums)
        found.append((used // span + block * _SERIES_AT_ONCE, used % span + low, np.rint(sums[used]).astype(np.int64)))
    parts = [np.concatenate(column) for column in zip(*found, strict=True)]
    return parts[0], parts[1], parts[2]


def percentile(series: Ints, rates: Floats, weights_ms: Ints, share: float, count: int) -> Floats:
    """Return, for series 0 to count-1, the smallest rate not exceeded during `share` of its weight; NaN where it has none.

    The entries are ordered by series, then by rate.
    """
    running = np.cumsum(weights_ms)
    totals = np.bincount(series, weights=weights_ms, minlength=count)
    before = np.cumsum(totals) - totals
    place = np.searchsorted(running, before + share * totals - 1e-6, side="left")
    return np.where(totals > 0, rates[np.minimum(place, max(len(rates) - 1, 0))] if len(rates) else np.nan, np.nan)
