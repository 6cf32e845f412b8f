"""Objects at a URL: `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or `file:///path`.

The one home of obstore, which is imported when the first URL is opened. A put is whole or not there, at every store;
what a store answers is told as one of three errors (`faults.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from flatwater.errors import ConfigError
from flatwater.storage.credentials import settings_of
from flatwater.storage.directory import Piece, sync_file, telling
from flatwater.storage.faults import telling_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "file")
SHAPES = "s3://bucket/path, gs://bucket/path, az://container/path or file:///path"
_CHUNK = 1 << 20
"""Bytes that are read at a time."""
_CLIENT = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=300)}
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
PATIENT, QUICK = 6, 4
"""Tries again, of who waits for the answer, and of who has a queue of its own to try again."""


def is_url(place: str | Path) -> bool:
    """Whether a run is meant that lies at a URL, not in a folder."""
    return "://" in str(place)


@dataclass(frozen=True)
class Entry:
    """One object of a list."""

    name: str
    bytes: int
    modified: datetime
    """By the store's clock."""


@dataclass(frozen=True)
class Objects:
    """The objects below a URL, by the rest of their names."""

    url: str
    """Without a slash at its end."""
    store: "ObjectStore"
    """obstore's; its root is the bucket, or `/` of the file system."""
    prefix: str = ""
    """What stands before every name; ends with a slash where it is not empty."""

    def below(self, name: str) -> "Objects":
        """The objects below a name."""
        return Objects(f"{self.url}/{name}", self.store, f"{self.prefix}{name}/")

    def put(self, name: str, content: Piece) -> str:
        """Write an object, over the one that is there. Returns its tag: the store's own mark of its content.

        Raises:
            ConfigError: the store refuses it for good.
            StoreError: the store cannot be reached, or fails.
        """
        return self._put(name, content, "overwrite")

    def create(self, name: str, content: Piece) -> bool:
        """Write an object unless there is one of that name. False: there is.

        Raises:
            ConfigError: the store refuses it for good.
            StoreError: the store cannot be reached, or fails.
        """
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        try:
            self._put(name, content, "create")
        except AlreadyExistsError:
            # A put whose answer was lost is tried again, and then finds itself.
            return self.read(name) == bytes(content)
        return True

    def _put(self, name: str, content: Piece, mode: Literal["create", "overwrite"]) -> str:
        import obstore  # noqa: PLC0415

        with telling_store(self.url, "write"):
            tag = obstore.put(self.store, self.prefix + name, content, mode=mode, use_multipart=False)["e_tag"]
        self._flush(name)
        return _bare(tag)

    def put_parts(self, name: str, parts: Iterable[bytes]) -> str:
        """Write an object in parts, of which two are held at a time. Returns its tag.

        What `parts` raises ends the writing, and no shorter object comes to be.

        Args:
            name: of the object.
            parts: of the same size, but for the last; S3 wants 5 MiB or more.

        Raises:
            ConfigError: the store refuses it for good.
            StoreError: the store cannot be reached, or fails.
        """
        import obstore  # noqa: PLC0415

        writer = None
        for part in parts:
            with telling_store(self.url, "write"):
                if writer is None:
                    writer = obstore.open_writer(
                        self.store, self.prefix + name, buffer_size=len(part), max_concurrency=1
                    )
                writer.write(part)
        with telling_store(self.url, "write"):
            if writer is not None:
                writer.close()
        self._flush(name)
        with telling_store(self.url, "read"):
            return _bare(obstore.head(self.store, self.prefix + name)["e_tag"])

    def _flush(self, name: str) -> None:
        """Wait until the disk has it; other stores answer no earlier than that."""
        if self.url.startswith("file:"):
            sync_file(Path("/", self.prefix, name))

    def read(self, name: str) -> bytes | None:
        """A small object; None where there is none.

        Raises:
            ConfigError: the store refuses it for good.
            StoreError: the store cannot be reached, or fails.
        """
        try:
            return b"".join(self.pieces(name))
        except FileNotFoundError:
            return None

    def pieces(self, name: str) -> Iterator[bytes]:
        """An object's content.

        Raises:
            FileNotFoundError: there is no such object.
            ConfigError: the store refuses it for good.
            StoreError: the store cannot be reached, or fails.
        """
        import obstore  # noqa: PLC0415

        with telling_store(self.url, "read"):
            for piece in obstore.get(self.store, self.prefix + name).stream(min_chunk_size=_CHUNK):
                yield bytes(piece)

    def entries(self, folder: str = "") -> list[Entry]:
        """The objects whose names begin with the folder, folders below it included, by name."""
        import obstore  # noqa: PLC0415

        start = self.prefix + folder
        with telling_store(self.url, "list"):
            pages = obstore.list(self.store, start or None)
            found = [
                Entry(entry["path"].removeprefix(self.prefix), entry["size"], entry["last_modified"])
                for page in pages
                for entry in page
            ]
        return sorted(found, key=lambda entry: entry.name)

    def folders(self) -> list[str]:
        """The names that stand before a slash, sorted."""
        import obstore  # noqa: PLC0415

        with telling_store(self.url, "list"):
            found = obstore.list_with_delimiter(self.store, self.prefix or None)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, names: list[str]) -> None:
        """Remove objects; one that is not there is none less."""
        import obstore  # noqa: PLC0415

        for name in names:
            try:
                with telling_store(self.url, "remove"):
                    obstore.delete(self.store, self.prefix + name)
            except FileNotFoundError:
                continue

    def remove_unfinished(self) -> None:
        """Remove what writers that were killed have left in a folder. Other stores keep such things out of sight.

        Raises:
            RunError: a file cannot be removed.
        """
        folder = Path("/", self.prefix)
        if self.url.startswith("file:"):
            with telling(folder):
                for path in folder.rglob("*#*"):
                    if path.name.rpartition("#")[2].isdigit():  # as obstore names what is not whole yet
                        path.unlink(missing_ok=True)


def _bare(tag: str | None) -> str:
    return (tag or "").strip('"')


def open_objects(url: str, retries: int = PATIENT) -> Objects:
    """The objects below a URL. Nothing is asked of the store yet.

    Args:
        url: of a folder of objects.
        retries: of each request that fails without being refused, in 5 s or less.

    Raises:
        ConfigError: the URL is none, or its store's settings cannot be used.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (parts.scheme == "file") == bool(parts.netloc) or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is no place for a mirror: it must be {SHAPES}, without ? and #")
    path = unquote(parts.path).strip("/")
    prefix = f"{path}/" if path else ""
    return Objects(url.rstrip("/"), _open(parts.scheme, parts.netloc, url, retries), prefix)


def _open(scheme: str, bucket: str, url: str, retries: int) -> "ObjectStore":
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store  # noqa: PLC0415

    if scheme == "file":
        return LocalStore("/")
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    settings, plain_http = settings_of(scheme)
    client = _CLIENT | {"allow_http": plain_http}
    retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=30), "backoff": _BACKOFF}
    try:
        store: ObjectStore = kind(bucket, client_options=client, retry_config=retry, **settings)
    except (BaseError, ValueError) as error:
        with telling_store(url, "open"):
            raise error from None
        raise AssertionError from None
    return store
