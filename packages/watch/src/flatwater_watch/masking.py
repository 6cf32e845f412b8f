"""The masking of secrets in texts that are shown or kept: others read an error or a record, for years.

A command line, a URL and a header carry passwords and keys. Masked are the user in a URL (`s3://key:secret@bucket`),
the value of a name for a secret (`--password x`, `API_KEY=x`, `?token=x&`, `"secret": "x"`), the word after `Bearer`,
and strings that can only be a key of a known service. A name decides by its words, so `--max-tokens` and `--key-dim`
keep their values.
"""

import re
from collections.abc import Iterator, Sequence

MASK = "***"

# A name's words: `awsSecretAccessKey`, `DB-PASSWORD`, `model.api_key`.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_ANYWHERE = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|(?:api|access|private)key|(?:auth|access)token"
)
"""Parts of a name that leave no doubt."""
_SECRET_WORDS = frozenset(
    {"pass", "pwd", "pat", "auth", "authorization", "bearer", "cookie", "sig", "signature", "sas"}
)
"""Words of a name that mean a secret anywhere in it."""
_SECRET_LAST_WORDS = ("key", "token")
"""Words that mean a secret as a name's last word: `--api-key`, `--token`, but not `--key-dim`, `--token-count`."""
_PLACE_WORDS = frozenset({"file", "path", "dir", "folder", "env", "name"})
"""Last words of a name that mean the place of a secret, not the secret: `--password-file`."""
_HARMLESS_PAIRS = frozenset({("sort", "key"), ("primary", "key"), ("foreign", "key")})

# Quantifiers are possessive or bounded: a text of megabytes is read in one pass.
_SHOWN_AS_SECRET = re.compile(
    r"""(?P<before>[?&]?)(?<![\w.\-])(?P<name>[-+]{0,2}[A-Za-z_][\w.\-]*+)
    (?: (?P<assigned> = | \s?=\s?(?=\\?["']) )
      | (?P<entry> \\?["']\s{0,9}[:=]\s{0,9}(?=\\?["']) )
      | (?P<listed> (?<=[\w]) \\?["'],\s{0,9}(?=\\?["'](?!-)) )
      | (?P<header> \s?:\s{0,3}(?!\s) )
      | (?P<option> \s{1,9}(?![\s\-]) ) )""",
    re.VERBOSE,
)
"""A name, and the characters between it and its value: assigned, as in `key=x`; an entry, as in `"key": "x"`; listed,
as in `["--key", "x"]`; a header, as in `X-Api-Key: x`; or an option, as in `--key x`."""
_VALUE = re.compile(
    r"""(?P<quote>\\?["'])(?:(?!(?P=quote)).)*+(?P=quote)?
      | (?:(?:bearer|basic|token|digest)\s++)?[^\s"'<>]++""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""The value behind such a name: a text in quotes, one word, or a word behind `Bearer`, as in `Bearer eyJhb`."""
_HEADER = re.compile(
    r"authorization|proxy-authorization|cookie|set-cookie|[\w\-]+-(?:key|token|secret|auth)", re.IGNORECASE
)
"""The name of a header that holds a secret, such as Authorization or X-Api-Key."""
_BEARER = re.compile(r"\b(bearer|basic)(\s{1,9})(?=[^\s]*[\d=_.])[\w.~+/=\-]{12,}", re.IGNORECASE)
"""A secret behind `Bearer` or `Basic`, such as `Bearer abc123def456`; a word of letters alone may be prose."""
_USERINFO = re.compile(
    r"""(\b[A-Za-z][A-Za-z0-9+.\-]{0,31}://)
    (?: [^\s/?\#"'<>]{0,1024}@ | [^\s/?\#:@"'<>]{0,256}:(?!\d{1,5}[/?\#])[^\s"'<>]{0,1024}@ )""",
    re.VERBOSE,
)
"""User and password before the host of a URL; a secret key of S3 may hold slashes, which a port does not."""
_KNOWN_TOKENS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|hf_\w{20,}|sk-[\w\-]{20,}"
    r"|xox[abeoprs]-[\w\-]{10,}|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*|AIza[\w\-]{30,})"
)
"""Keys of AWS, GitHub, GitLab, Hugging Face, OpenAI, Slack and Google, and signed tokens, by their first letters."""


def names_secret(name: str) -> bool:
    """Return whether an option, a variable, a field of a URL or a header with this name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[0] in {"no", "without"}:  # `--no-password`
        return False
    if words[-1] in _PLACE_WORDS or tuple(words[-2:]) in _HARMLESS_PAIRS:
        return False
    if _SECRET_ANYWHERE.search("".join(words)) or not _SECRET_WORDS.isdisjoint(words):
        return True
    # `hftoken` is one word to the pattern; the id of a key (`KEY_ID`) counts as a secret too.
    return words[-1].endswith("token") or words[-1] in _SECRET_LAST_WORDS or words[-2:] == ["key", "id"]


def mask_secrets(text: str) -> str:
    """Return the text with `***` for each secret in it; masking a second time changes nothing."""
    text = _USERINFO.sub(rf"\g<1>{MASK}@", text)
    text = "".join(_mask_values(text))
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    return _KNOWN_TOKENS.sub(MASK, text)


def mask_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with `***` for each secret; a value is masked whole, blanks included."""
    masked_words: list[str] = []
    secret_follows = False  # as after `--password`
    for word in words:
        name, equals, value = word.partition("=")
        # Not a URL or a path, which may have an `=` as well.
        is_secret_name = re.fullmatch(r"[\w.+\-]+", name) is not None and names_secret(name)
        if secret_follows and not word.startswith("-"):
            masked_words.append(MASK)
        elif equals and value and is_secret_name:
            masked_words.append(f"{name}={MASK}")
        else:
            masked_words.append(mask_secrets(word))
        secret_follows = not equals and word.startswith("-") and is_secret_name
    return masked_words


def _mask_values(text: str) -> Iterator[str]:
    """Yield the text in pieces, with `***` in the place of each secret's value."""
    yielded_end = 0  # index behind the text that was yielded so far
    for name_match in _SHOWN_AS_SECRET.finditer(text):
        # A masked value may itself look like a name, as in `--password token=x`, and is not searched again.
        if name_match.start() < yielded_end or not _precedes_secret(name_match):
            continue
        value = _VALUE.match(text, name_match.end())
        if value is None:
            continue
        quote = value["quote"] or ""
        yield f"{text[yielded_end : name_match.end()]}{quote}{MASK}{quote}"
        yielded_end = value.end()
    yield text[yielded_end:]


def _precedes_secret(match: re.Match[str]) -> bool:
    """Return whether a secret follows the name in a match of `_SHOWN_AS_SECRET`."""
    name = match["name"]
    if name == "key" and not match["before"]:  # an argument of Python's: `sorted(rows, key=len)`
        return False
    if (match["option"] or match["listed"]) and not name.startswith("-"):  # `token x` is prose, `--token x` an option
        return False
    if match["header"] and not _HEADER.fullmatch(name):  # `secret: x` is prose, `Authorization: x` a header
        return False
    return names_secret(name)
