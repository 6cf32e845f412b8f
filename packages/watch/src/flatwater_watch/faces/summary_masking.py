"""Masks the secrets in a summary, such as passwords in a command line, before it is shown or written."""

from typing import Any

from flatwater_watch.masking import mask_secrets, mask_words


def masked_summary(summary: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Return a summary with its program's command, and with the secrets in all texts masked."""
    masked: dict[str, Any] = mask_values(summary)
    return {"program": " ".join(mask_words(words)), **{name: masked[name] for name in masked if name != "program"}}


def mask_values(value: Any) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    """Return the value with the secrets in its texts masked, keys of dicts included: keys of a cache may be URLs."""
    if type(value) is str:
        return mask_secrets(value)
    if type(value) is dict:
        return {mask_secrets(name): mask_values(item) for name, item in value.items()}
    if type(value) is list:  # columns of numbers are long
        return [item if type(item) in {int, float} else mask_values(item) for item in value]
    return value
