"""A round's numbers by name. The part before the slash says what they are about.

`fitness/*` and `validation/*` are in points of reward, `train/*` are losses and gradient norms, `time/*` seconds by
phase, `buffer/fill` and `trades/win_rate` shares of 1, `memory/*` bytes, and `system/*` what other tools show under
these names. A number that a round does not have is left out; NaN means that arithmetic went wrong, and raises an alarm.
"""

from collections.abc import Mapping

Metrics = Mapping[str, float]
"""Name -> number, such as `{"fitness/mean": 3.2, "time/learn": 11.4, "memory/resident": 412_000_256}`."""
