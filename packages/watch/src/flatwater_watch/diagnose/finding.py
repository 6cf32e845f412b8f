"""A finding: one cause of growth with its owner, its line, the time when memory ends, and advice.

The same object is in findings.jsonl and in the output of `flatwater watch --json`; `finding_text` has its words.
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from math import isfinite
from typing import Any

from flatwater_watch.diagnose.verdicts import VERDICTS, VerdictName
from flatwater_watch.paths import file_name
from flatwater_watch.thresholds import OWNING

try:
    # The module from which `random` imports it, as `hashlib` loads OpenSSL for 4 ms of CPU. Imported here and not when
    # it is used, as the program may replace functions that imports need.
    _sha256: Any = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
except ImportError:  # a Python that was built without it
    _sha256 = import_module("hashlib").sha256


NUMBER_FIELDS = ("bytes_per_step", "share", "count")
OPTIONAL_NUMBER_FIELDS = ("plateau_bytes", "plateau_step", "limit_bytes", "limit_step", "limit_time")
TEXT_FIELDS = ("owner", "what", "advice", "unit")
"""Fields of a finding, by the type that their values must have."""


@dataclass(frozen=True)
class AllocationSite:
    """The line of the user's program that made most of the objects that grew."""

    file: str
    line: int
    function: str
    """Qualified name without `<locals>`; `<module>` at the top level of a file."""
    operation: str
    """Name of the operation: `aten::mm` for tensors, `numpy` for arrays, `python` for other objects."""

    def __str__(self) -> str:
        place = "" if self.function == "<module>" else f" in {self.function}"
        return f"{file_name(self.file)}:{self.line}{place} ({self.operation})"


@dataclass(frozen=True)
class Finding:
    """One cause of growth. Bytes are per `unit`; steps are counted in `unit`."""

    verdict: VerdictName
    owner: str
    """Path of the container that grows (`train.HISTORY`), of a leaf of the state, or the kind of memory."""
    holders: tuple[str, ...]
    """The chain that keeps it alive, root first; empty if no Python object explains the growth."""
    made_at: AllocationSite | None
    bytes_per_step: float
    interval: tuple[float, float]
    """Bounds of `bytes_per_step`, at 95 % confidence."""
    share: float
    """Share of the growth of the whole process that this finding explains, 0 to 1."""
    count: int
    """Number of objects of the main content."""
    what: str
    """The main content: `120 × float32[64, 504]`."""
    plateau_bytes: int | None
    """Resident bytes of the owner at which a filling ends."""
    plateau_step: int | None
    """The step at which a filling ends."""
    limit_bytes: int | None
    """Resident bytes at which the process must stop."""
    limit_step: int | None
    """The step at which the process reaches its limit; None if the plateau comes first or nothing grows."""
    advice: str
    unit: str = "round"
    redundancy: str | None = None
    """A sentence if the contents store the same data twice."""
    outside: bool = False
    """Whether the bytes lie outside of Python, behind the owner's items, so that no census weighs them."""
    limit_time: float | None = None
    """Time of `limit_step` in seconds since 1970, at the pace of the steps so far; None if it is not known."""
    parts: tuple[str, ...] = ()
    """Owners of the findings that were merged into this finding, most bytes first; `owner` holds them all."""

    @property
    def fingerprint(self) -> str:
        """An id of twelve hexadecimal digits, which stays when the program is run again, or edited elsewhere.

        It is a hash of verdict, owner, file and function, without indexes, lines and sizes.
        """
        site = "" if self.made_at is None else f"{file_name(self.made_at.file)}:{self.made_at.function}"
        digest: str = _sha256(f"{self.verdict}\n{self.owner}\n{site}".encode()).hexdigest()
        return digest[:12]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain lists, numbers and strings by the names of the fields, with the fingerprint."""
        lists = {"holders": list(self.holders), "interval": list(self.interval), "parts": list(self.parts)}
        return asdict(self) | lists | {"fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Finding":
        """Return the finding that `to_json` wrote; it is checked, as a person may have edited the file.

        Raises:
            KeyError: a key is missing.
            TypeError: a value is of another type, or there is a key too many.
            ValueError: a number is not finite, or a word is unknown.
            OverflowError: a number is too large.
        """
        site_fields = record["made_at"]
        low, high = record["interval"]
        fields = {name: value for name, value in record.items() if name != "fingerprint"}  # which is a property
        # JSON has lists and dicts for tuples and dataclasses.
        converted_values = {
            "holders": tuple(record["holders"]),
            "interval": (low, high),
            "parts": tuple(record.get("parts", ())),  # earlier versions wrote none
            "made_at": None if site_fields is None else AllocationSite(**site_fields),
        }
        finding = cls(**fields | converted_values)
        _check_values(finding)
        return finding

    @property
    def has_date(self) -> bool:
        """Whether the time of the limit is certain enough to be shown: the bounds of the rate are near each other."""
        low, high = self.interval
        return self.limit_step is not None and low > 0 and high <= OWNING.maximum_dated_rate_ratio * low

    @property
    def dies_first(self) -> bool:
        """Whether the process reaches its memory limit before the owner is full; False for an owner without a bound."""
        if self.limit_step is None or self.plateau_bytes is None:
            return False
        return self.plateau_step is None or self.limit_step < self.plateau_step


def _check_values(finding: Finding) -> None:
    """Check types and values of a finding that was read from a file; raise TypeError or ValueError."""
    values = vars(finding)
    if finding.verdict not in VERDICTS:
        raise ValueError(f"verdict = {finding.verdict!r}: expected one of {', '.join(VERDICTS)}")
    site = finding.made_at
    texts = [*(values[name] for name in TEXT_FIELDS), *finding.holders, *finding.parts, finding.redundancy or ""]
    if site is not None:
        texts += [site.file, site.function, site.operation]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r}: expected a text")
    if not finding.unit:
        raise ValueError("unit: expected a word, got nothing")
    if not isinstance(finding.outside, bool):
        raise TypeError(f"outside = {finding.outside!r}: expected true or false")
    optional_numbers = (values[name] for name in OPTIONAL_NUMBER_FIELDS if values[name] is not None)
    for number in (*(values[name] for name in NUMBER_FIELDS), *finding.interval, *optional_numbers):
        if isinstance(number, bool) or not isinstance(number, int | float):  # a bool is an int to Python
            raise TypeError(f"{number!r}: expected a number")
        if not isfinite(number):
            raise ValueError(f"{number!r}: expected a finite number")


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, largest share of the growth first; `retention` (freed memory that is kept) is last.

    Retention is often a consequence of the other findings, as the free blocks lie between objects that stay.
    """
    return sorted(
        findings, key=lambda finding: (finding.verdict == "retention", -finding.share, -finding.bytes_per_step)
    )
