"""Errors of a store, translated into errors that say whether to wait or which setting to change."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from flatwater.storage.client_settings import EXPECTED_CREDENTIALS
from flatwater_watch.errors import ConfigError, FlatwaterError, RunError

# Texts by which messages are told apart: obstore has one class of errors for a missing bucket and a missing object.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_NO_KEYS = (
    "169.254.169.254",  # the address at which a cloud's own machines ask for credentials
    "metadata.google.internal",
    "token request",
    "Missing SecretAccessKey",
    "Missing AccessKeyId",
    "Account must be specified",
    "service account",
)
_WRONG_KEYS = (
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "InvalidToken",
    "401 Unauthorized",
)
_FORBIDDEN = ("AccessDenied", "403 Forbidden", "Permission denied", "Operation not permitted", "Read-only file system")
_NO_FOLDER = ("Unable to create dir", "Not a directory")
_ODD_NAME = ("empty path segment", "illegal character sequence", "invalid path", "InvalidPath")
_WRONG_REGION = ("redirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint")
_REGION_VARIABLES = {"s3": "AWS_REGION", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_NEEDED_PERMISSIONS = "reading, writing, listing and removing objects"
_REQUEST_WORDS = {"write": "writing", "read": "reading", "list": "listing", "remove": "removing", "open": "opening"}


class StoreError(RunError):
    """A store that cannot be reached now, or that fails: it may work again in a minute."""


class OversizeError(StoreError):
    """An object goes on after the bytes that it should have."""


class OddNameError(ConfigError):
    """An object has a name that the client cannot parse, so its whole folder cannot be listed."""


@contextmanager
def translate_store_errors(url: str, request: str) -> Iterator[None]:
    """Translate exceptions of obstore within this context into Flatwater's, which say what the user can do.

    Args:
        url: URL of the objects.
        request: `write`, `read`, `list`, `remove` or `open`.

    Raises:
        FileNotFoundError: there is no object of that name; passed on, if the bucket exists.
        AlreadyExistsError: there is such an object already; obstore's class, passed on.
        ConfigError: the store cannot be used before something is set or permitted.
        StoreError: anything else.
    """
    from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415  (it takes long to import: only where a URL is used)

    try:
        yield
    except AlreadyExistsError:
        raise
    except FileNotFoundError as error:
        # Only these requests may miss the object alone; if another finds nothing, the bucket is missing.
        if request in {"read", "remove"} and not _has_any(str(error), _NO_BUCKET):
            raise
        raise explain_error(url, request, error) from error
    except (BaseError, OSError, ValueError) as error:
        raise explain_error(url, request, error) from error


def explain_error(url: str, request: str, error: Exception) -> FlatwaterError:
    """Return a ConfigError for a fault that the user can mend, and a StoreError for any other.

    Args:
        url: URL of the objects.
        request: `write`, `read`, `list`, `remove` or `open`.
        error: exception of obstore or the system.
    """
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415  (it takes long to import: only where a URL is used)

    text = str(error)
    summary = _summarise_message(text)
    scheme, bucket = urlsplit(url).scheme, urlsplit(url).netloc
    kind = "container" if scheme == "az" else "bucket"
    # A file system has no buckets that could be missing.
    is_missing = isinstance(error, FileNotFoundError) and scheme != "file"
    is_forbidden = isinstance(error, PermissionDeniedError | PermissionError)
    # Whether each reason applies, and its text. The order matters: an answer may have several of the texts.
    reasons = [
        (_has_any(text, _NO_KEYS), f"there are no credentials for it. Set {EXPECTED_CREDENTIALS[scheme]}."),
        (
            _has_any(text, _WRONG_KEYS) or isinstance(error, UnauthenticatedError),
            f"the credentials are not accepted ({summary}). Set {EXPECTED_CREDENTIALS[scheme]}.",
        ),
        (
            _has_any(text, _WRONG_REGION),
            f"{bucket} is in another region ({summary}). Set {_REGION_VARIABLES.get(scheme)}.",
        ),
        (_has_any(text, _NO_BUCKET) or is_missing, f"there is no {kind} {bucket!r}. Make it, or correct the URL."),
        (
            _has_any(text, _FORBIDDEN) or is_forbidden,
            f"{_REQUEST_WORDS[request]} is not permitted. A mirror needs {_NEEDED_PERMISSIONS} there ({summary}).",
        ),
        (
            _has_any(text, _NO_FOLDER) and scheme == "file",
            f"this folder cannot be made ({summary}). Correct the URL.",
        ),
    ]
    # Before the reasons, and for lists alone: in other requests the odd name is the caller's own.
    if request == "list" and _has_any(text, _ODD_NAME):
        return OddNameError(
            f"{url}: an object there has a name that cannot be listed ({summary!r}). Remove the "
            "object with the store's own tools."
        )
    for applies, reason in reasons:
        if applies:
            return ConfigError(f"{url}: {reason}")
    return StoreError(f"{url}: {_REQUEST_WORDS[request]} fails ({summary})")


def _has_any(message: str, parts: tuple[str, ...]) -> bool:
    return any(part in message for part in parts)


def _summarise_message(message: str) -> str:
    """Return a summary of an obstore message: `PUT http://host/name: 403 Forbidden, AccessDenied`.

    Without a request or a status in the message, the text after its last colon stands for them.
    """
    # As in `Error performing PUT http://host/name in 5ms - Server returned non-2xx status code: 403 Forbidden: ...`.
    line = message.split("\n", 1)[0].removesuffix(".")
    request = line.rpartition("Error performing ")[2].partition(" in ")[0] if "Error performing" in line else ""
    status = line.partition("non-2xx status code: ")[2].partition(":")[0]
    summary = ": ".join(item for item in (request, status or line.rpartition(": ")[2]) if item)
    code = message.partition("<Code>")[2].partition("</Code>")[0]
    return f"{summary}, {code}" if code else summary
