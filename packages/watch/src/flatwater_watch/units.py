"""Bytes and durations, for people."""

import re
import time

from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

_BINARY_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_UNIT_BYTES = dict(_BINARY_UNITS) | {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1, "": 1}
_UNIT_BYTES_LOWER = {unit.lower(): size for unit, size in _UNIT_BYTES.items()}
_MAXIMUM_BYTES = 1 << 60
_DECIMAL_LIMIT = 1000
"""Number from which on all digits before the point are shown."""
_HOUR, _DAY = 3600.0, 86400.0
_UNIT_SECONDS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": _HOUR, "d": _DAY}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def format_bytes(count: float) -> str:
    """Return bytes in a unit with two decimals: `1536` as `1.50 KiB`; below 1 KiB whole, as `12 B`."""
    for unit, size in _BINARY_UNITS:
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


def short_bytes(count: float) -> str:
    """Return bytes in a unit with three digits, for places next to the exact number: `1536` as `1.5 KiB`."""
    number, unit = format_bytes(count).split()
    return f"{float(number):.3g} {unit}" if abs(float(number)) < _DECIMAL_LIMIT else f"{float(number):.0f} {unit}"


def parse_bytes(text: str) -> int:
    """Return the number of bytes of a text such as `8GiB`, `500 MB` or `1024`.

    Raises:
        ConfigError: the text is not a number followed by a known unit.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].lower() not in _UNIT_BYTES_LOWER:
        raise ConfigError(f"{short_repr(text)} is not an amount of memory. Write it like 8GiB, 500MB or 1024.")
    amount = float(match[1]) * _UNIT_BYTES_LOWER[match[2].lower()]
    if amount > _MAXIMUM_BYTES:
        raise ConfigError(f"{short_repr(text)} is more memory than any machine has. Write it like 8GiB, 500MB or 1024.")
    return round(amount)


def format_duration(seconds: float) -> str:
    """Return seconds in words: `5025` as `1 h 23 min`, `83` as `1 min 23 s`, `4.2` as `4.2 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60} min"


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of a text such as `90s`, `10m` or `1.5h`.

    Args:
        text: number and unit.
        option: name of the option with the text, for the error.

    Raises:
        ConfigError: the text is not a number above 0 followed by a known unit.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in _UNIT_SECONDS or float(match[1]) <= 0:
        raise ConfigError(f"{option} {short_repr(text)}: is not a length of time. Write it like 90s, 10m or 1h.")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def two_digits(count: float) -> str:
    """Return a number with two significant digits, as no forecast is better than that: `6938` as `6900`."""
    number = float(f"{count:.2g}")
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number}"


def clock_words(time_seconds: float, now: float | None = None) -> str:
    """Return a future time in words: `about 03:40`, `about 03:40 on Thursday`, `about 12 March`, `in about 3 years`.

    Args:
        time_seconds: seconds since 1970.
        now: seconds since 1970; None asks the clock.
    """
    # The further off the time is, the coarser the words are, as the forecast errs by more.
    seconds_left = time_seconds - (time.time() if now is None else now)
    if seconds_left >= 550 * _DAY:
        return f"in about {two_digits(seconds_left / (365 * _DAY))} years"
    if seconds_left >= 300 * _DAY:
        return "in about a year"
    # The time is rounded to a minute, ten minutes or an hour.
    if seconds_left < 2 * _HOUR:
        rounding_seconds = 60.0
    elif seconds_left < 20 * _HOUR:
        rounding_seconds = 600.0
    else:
        rounding_seconds = _HOUR
    moment = time.localtime(round(time_seconds / rounding_seconds) * rounding_seconds)
    if seconds_left >= 6 * _DAY:
        return f"about {moment.tm_mday} {time.strftime('%B', moment)}"
    if seconds_left >= 20 * _HOUR:
        return time.strftime("about %H:%M on %A", moment)
    return time.strftime("about %H:%M", moment)
