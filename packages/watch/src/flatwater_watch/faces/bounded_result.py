"""Reads a kept result of a watch in bounded memory: the file may have hundreds of MiB, or come from elsewhere.

The file is split into its values without building them (`msgspec.Raw` is a view of bytes). Columns of readings are
thinned as text, piece by piece, and only the first findings are read, which are the largest.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from flatwater_watch.faces.summary_masking import mask_values
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular
from flatwater_watch.units import format_bytes

MAXIMUM_POINTS = 4096
"""Maximum readings of a record that are read, spread evenly: no chart shows more."""
MAXIMUM_FINDINGS = 500
"""Maximum findings that are read."""
OTHER_BYTES = 32 << 20
"""Maximum bytes of all other values together."""
PIECE_BYTES = 1 << 20
"""Bytes of a column that are split at a time."""
_OBJECT_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST_DECODER = msgspec.json.Decoder(list[msgspec.Raw])


def read_record(path: Path) -> Any:  # noqa: ANN401  (what JSON can hold: whoever reads it checks what it is)
    """Read the JSON of a file, and of a watch's result a bounded number of readings and findings.

    Raises:
        OSError: the file cannot be read, or is too large.
        ValueError: the file is not JSON.
        RecursionError: the JSON is nested too deeply.
    """
    content = read_regular(path, RESULT_BYTES)
    try:
        raw_fields = _OBJECT_DECODER.decode(content)
    except msgspec.DecodeError as fault:  # no JSON object, or of another dialect, such as one with NaN
        if len(content) > OTHER_BYTES:
            raise ValueError(f"no JSON that can be read in parts ({fault})") from fault
        return mask_values(json.loads(content))
    notes = list[str]()  # sentences on what is left out
    order = [*raw_fields]  # the result keeps the order of the file
    record: dict[str, Any] = {}
    if "findings" in raw_fields:
        record["findings"] = _read_first_findings_(raw_fields.pop("findings"), notes)
    if "series" in raw_fields:
        record["series"] = _read_thinned_columns_(raw_fields.pop("series"), notes)
    other_bytes = sum(map(len, raw_fields.values()))
    if other_bytes > OTHER_BYTES:
        raise ValueError(f"its values other than readings and findings have {format_bytes(other_bytes)}")
    record |= {name: json.loads(bytes(value)) for name, value in raw_fields.items()}
    if notes and type(record.get("unseen")) is list:  # else it is no result of a watch, as its reader will find
        record["unseen"] += notes
    return mask_values({name: record[name] for name in order})  # earlier versions kept secrets


def _read_first_findings_(value: msgspec.Raw, notes: list[str]) -> Any:  # noqa: ANN401  (JSON)
    """Read the first findings, at most `MAXIMUM_FINDINGS`; if some are left out, append a sentence on them to `notes`.

    Raises:
        ValueError: the value is long and not a list, or the first findings are too large.
    """
    # A short list is read whole, whatever its number: the limits are for memory.
    if len(value) <= PIECE_BYTES:
        return json.loads(bytes(value))
    try:
        records = _LIST_DECODER.decode(value)
    except msgspec.DecodeError as fault:
        raise ValueError(f"its findings are not a list ({fault})") from fault
    if len(records) > MAXIMUM_FINDINGS:
        notes.append(f"{len(records) - MAXIMUM_FINDINGS:,} findings of {len(records):,}: only the largest are read")
    size = sum(map(len, records[:MAXIMUM_FINDINGS]))
    if size > OTHER_BYTES:
        raise ValueError(f"its first {MAXIMUM_FINDINGS} findings have {format_bytes(size)}")
    return [json.loads(bytes(record)) for record in records[:MAXIMUM_FINDINGS]]


def _read_thinned_columns_(value: msgspec.Raw, notes: list[str]) -> Any:  # noqa: ANN401  (JSON)
    """Read the columns of readings by name; if long columns are thinned, append a sentence on that to `notes`.

    Raises:
        ValueError: the value is not a JSON object of columns.
    """
    try:
        columns = _OBJECT_DECODER.decode(value)
    except msgspec.DecodeError as fault:
        raise ValueError(f"its series are not columns ({fault})") from fault
    thinned_columns = {}
    for name, column in columns.items():
        # One value in `stride` is kept: all of them if it is 1.
        thinned_columns[name], stride = _thin_column(bytes(column))
        if stride > 1:
            note = f"readings between: of this record one in {stride} is read"
            if note not in notes:  # one sentence for all columns of a stride
                notes.append(note)
    return thinned_columns


def _thin_column(text: bytes) -> tuple[Any, int]:
    """Read a JSON list; of a long list of numbers, only every n-th number and the last.

    Args:
        text: the list as JSON, such as `[1,2,3]`.

    Returns:
        The list, and n, which is 1 for a list that is read whole.
    """
    count = text.count(b",") + 1
    # Commas separate numbers only where the column has no text and no nested list.
    is_list_of_numbers = b'"' not in text and text.count(b"[") == 1
    if count <= MAXIMUM_POINTS or not is_list_of_numbers:
        return json.loads(text), 1
    stride = -(-count // MAXIMUM_POINTS)  # rounded up
    thinned_points = list[bytes]()
    index = 0  # of the first value of the piece, in the whole column
    # The text between the brackets is split piece by piece, as there may be millions of numbers.
    begin, end = 1, len(text) - 1
    while begin < end:
        comma = text.find(b",", begin + PIECE_BYTES, end)
        piece_end = end if comma < 0 else comma
        values = text[begin:piece_end].split(b",")
        # `-index % stride` values are left out before the first whose index in the whole column is a multiple of it.
        thinned_points += values[-index % stride :: stride]
        index += len(values)
        begin = piece_end + 1
    if (count - 1) % stride:  # the last value was left out
        thinned_points.append(values[-1])
    return json.loads(b"[" + b",".join(thinned_points) + b"]"), stride
