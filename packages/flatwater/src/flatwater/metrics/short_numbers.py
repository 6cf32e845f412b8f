"""Numbers as short text, for tables with many columns; the exact numbers are in `metrics.jsonl`."""

from math import ceil, isfinite, log10

MINUTE, HOUR, DAY = 60, 3600, 86_400
MIB = 1 << 20
WHOLE_SECONDS_LIMIT = 999.5
"""Seconds from which `short_seconds` writes minutes."""

# From these values on, rounding would need one more character than a column has.
LARGE_PERCENT = 999.95
WHOLE_DIGITS_LIMIT = 99_999.5

_PLAIN_DECIMALS = ((9.995, 2), (99.95, 1), (999.5, 0))
_SCALED_DECIMALS = ((9.95, 1), (999.5, 0))
"""Pairs of an upper bound and the number of decimals below it; at the bound, rounding needs one more character."""


def short_number(value: float) -> str:
    """Return a number below 10^21 in at most 5 characters: `-9.99`, `-99.9`, `-999`, `1.2k`, `123M`, `nan`, `-inf`."""
    scaled_value = value
    # In units, thousands, millions and so on, until the number is short enough.
    for suffix in ("", *"kMGTPE"):
        for limit, decimals in _SCALED_DECIMALS if suffix else _PLAIN_DECIMALS:
            if abs(scaled_value) < limit:
                return f"{scaled_value:.{decimals}f}{suffix}"
        scaled_value /= 1000
    return f"{value:.0e}"  # for NaN and infinities too


def short_seconds(seconds: float) -> str:
    """Return seconds in at most 3 characters, from minutes on with a unit: `4.2`, `123`, `17m`, `28h`, `12d`."""
    # Limits of rounding: 9.95 would be written as `10.0`, and 99.5 minutes as `100m`.
    if seconds < 9.95:
        return f"{seconds:.1f}"
    if seconds < WHOLE_SECONDS_LIMIT:
        return f"{seconds:.0f}"
    if seconds < 99.5 * MINUTE:
        return f"{seconds / MINUTE:.0f}m"
    if seconds < 99.5 * HOUR:
        return f"{seconds / HOUR:.0f}h"
    return f"{seconds / DAY:.0f}d"


def short_duration(seconds: float) -> str:
    """Return seconds as a duration in at most 5 characters, up to 99 days: `42s`, `12m`, `1h05`, `23h59`, `3d4h`."""
    if seconds < 59.5:  # above, it would be rounded to `60s`
        return f"{seconds:.0f}s"
    # Rounded to minutes before hours are taken, so that 3,599 s are 1h00 and not 60m.
    minutes = round(seconds / MINUTE)
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}"
    hours = round(seconds / HOUR)
    # From ten days on without hours, for which 5 characters have no room.
    return f"{hours // 24}d{hours % 24}h" if hours < 10 * 24 else f"{hours // 24}d"


def finite_or_none(value: float) -> float | None:
    """Return the value, or None if it is NaN or infinite, as JSON has neither."""
    return value if isfinite(value) else None


def format_whole(value: float) -> str:
    """Return a number without decimals: all digits up to 99,999, above it a short number."""
    return f"{value:z.0f}" if abs(value) < WHOLE_DIGITS_LIMIT else short_number(value)  # `z`: no minus before a zero


def format_percent(value: float) -> str:
    """Return a share in whole percent, without the sign."""
    return f"{100 * value:z.0f}" if value == value else "nan"  # noqa: PLR0124  (only NaN differs from itself)


def format_small(value: float) -> str:
    """Return a number near 0 with three significant digits, `0.00312`; with two below a thousandth, `4.9e-04`."""
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def format_explained_share(value: float) -> str:
    """Return an explained variance with two decimals, and -1 for anything below."""
    return f"{max(value, -1.0):z.2f}" if value == value else "nan"  # noqa: PLR0124  (only NaN differs from itself)


def whole_share(value: float) -> str:
    """Return a share in whole percent: `50%`."""
    return f"{format_percent(value)}%"


def format_share(value: float) -> str:
    """Return a share with one decimal: `3.4%`."""
    return f"{value:.1%}"


def signed_percent(value: float) -> str:
    """Return a trading return as a signed percentage: `+12.3%`; from 1,000 % on as a short number."""
    percents = 100 * value
    return f"{percents:+.1f}%" if abs(percents) < LARGE_PERCENT else f"{short_number(percents)}%"


def nonzero_percent(value: float, decimals: int = 0) -> str:
    """Return a signed percentage with so many decimals, and more where a small value would read as 0: `-0.2%`."""
    if value and isfinite(value):
        # At least as many decimals as the first digit that is not 0 needs.
        decimals = max(decimals, ceil(-log10(abs(100 * value))))
    return f"{value:+z.{decimals}%}"  # `z`: no minus before a zero


def whole_mebibytes(value: float) -> str:
    """Return bytes in whole MiB."""
    return f"{value / MIB:.0f}"
