"""Objects at a URL: `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or `file:///path`.

The one home of obstore, which is imported when the first URL is opened. A put is whole or not there, at every store;
what a store answers is told as one of three errors (`faults.py`). A store may be wrong or hostile: every read has a
number of bytes at which it ends, every list a number of objects, and every request a time.

Whatever asks a store, here and in all modules above, may raise a `ConfigError`, where the store refuses for good, and a
`StoreError`, where it cannot be reached or fails. Docstrings name what is raised besides.
"""

import asyncio
import os
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from flatwater.storage.credentials import EXPECTED_CREDENTIALS, client_settings
from flatwater.storage.faults import OversizeError, StoreError, telling_store
from flatwater.storage.folders import folder_names, is_unfinished, list_files, open_listed
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import FilePiece, explain_os_errors, sync_file
from flatwater_watch.masking import mask_secrets
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_duration

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "file")
URL_FORMS = "s3://bucket/path, gs://bucket/path, az://container/path or file:///path"
_CHUNK_BYTES = 1 << 20
"""Bytes that are read at a time."""
RANGE_BYTES = 9 << 20
"""Bytes that one request reads: a shard of `checkpoints.shard_bytes` with its header. Larger objects take several."""
SMALL_BYTES = 64 << 20
"""Largest size of a small object: a manifest, a lock, a claim."""
MAXIMUM_ENTRIES = 200_000
"""Most objects of one list: shards of 1.6 TB."""
REQUEST_SECONDS = 300.0
"""Seconds in which a request and its answer must end: a shard at 30 KB/s. A store may be silent or trickle so long."""
_NAME_BYTES, _PART_BYTES = 1024, 255  # what S3 and file systems allow
_CLIENT_OPTIONS = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=REQUEST_SECONDS)}
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
T = TypeVar("T")
PATIENT, QUICK = 6, 4
"""Retries of a caller that waits for the answer, and of a caller with a queue of its own."""


def is_url(place: str | Path) -> bool:
    """Whether a place is a URL, not a folder."""
    return "://" in str(place)


@dataclass(frozen=True)
class ObjectEntry:
    """One object of a list."""

    name: str
    bytes: int
    modified: datetime
    """Time of the last change by the store's clock."""


@dataclass(frozen=True)
class StoredObjects:
    """The objects below a URL, by the rest of their names."""

    url: str
    """URL without a slash at its end."""
    store: "ObjectStore"
    """obstore's client; its root is the bucket, or `/` of the file system."""
    prefix: str = ""
    """Text before every name; ends with a slash where it is not empty."""
    retries: int = PATIENT
    """Retries of each request that fails without being refused."""

    @property
    def folder(self) -> Path | None:
        """Folder of a `file://` URL; None at other stores."""
        return Path("/", self.prefix) if self.url.startswith("file:") else None

    def below(self, name: str) -> "StoredObjects":
        """Return the objects below a name."""
        return replace(self, url=f"{self.url}/{name}", prefix=f"{self.prefix}{name}/")

    def reconnect(self) -> "StoredObjects":
        """Return the same objects by connections of their own: a wrong answer may be of the connection."""
        return self if self.folder else replace(self, store=open_objects(self.url, self.retries).store)

    def put(self, name: str, content: FilePiece) -> str:
        """Write an object, over one of that name. Returns its tag: the store's own mark of its content."""
        return self._put(name, content, "overwrite")

    def create(self, name: str, content: FilePiece) -> bool:
        """Write an object unless there is one of that name. Returns False if there is."""
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        try:
            self._put(name, content, "create")
        except AlreadyExistsError:
            # A put whose answer was lost is tried again, and then finds itself.
            return self.read(name) == bytes(content)
        return True

    def _put(self, name: str, content: FilePiece, mode: Literal["create", "overwrite"]) -> str:
        """Write an object by one request; return its tag, empty if the store gives none."""
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        with telling_store(self.url, "write"):
            # Not in parts: a put of one request is whole or not there, and a tag that is an MD5 is that of the content.
            tag = obstore.put(self.store, self.prefix + name, content, mode=mode, use_multipart=False)["e_tag"]
        self._flush(name)
        return _bare_tag(tag)

    def put_parts(self, name: str, parts: Iterable[bytes]) -> str:
        """Write an object in parts, of which two are held at a time. Returns its tag.

        What `parts` raises ends the writing, and no shorter object comes to be.

        Args:
            name: name of the object.
            parts: parts of the same size, but for the last; S3 wants 5 MiB or more.
        """
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        writer = None
        # Opened with the first part, whose size says how large parts are;
        # one at a time, so that two are held at most.
        for part_bytes in parts:
            with telling_store(self.url, "write"):
                if writer is None:
                    writer = obstore.open_writer(
                        self.store, self.prefix + name, buffer_size=len(part_bytes), max_concurrency=1
                    )
                writer.write(part_bytes)
        # `close` makes the object: where `parts` raises, this is not reached, and the store drops what it has.
        with telling_store(self.url, "write"):
            if writer is not None:
                writer.close()
        self._flush(name)
        with telling_store(self.url, "read"):
            return _bare_tag(obstore.head(self.store, self.prefix + name)["e_tag"])

    def _flush(self, name: str) -> None:
        """Wait until the disk has a file; other stores answer no earlier than that."""
        if self.folder:
            sync_file(self.folder / name)

    def read(self, name: str) -> bytes | None:
        """Return a small object, of at most `SMALL_BYTES`; None if there is none."""
        try:
            return b"".join(self.pieces(name, SMALL_BYTES))
        except FileNotFoundError:
            return None

    def pieces(self, name: str, maximum: int) -> Iterator[bytes]:
        """Yield an object's content, read until `maximum` bytes are there and not further.

        Args:
            name: name of the object.
            maximum: largest number of bytes that it may have.

        Raises:
            FileNotFoundError: there is no such object.
            OversizeError: the object goes on after `maximum` bytes.
        """
        bytes_left = maximum
        with telling_store(self.url, "read"):
            for piece in self._read_file(name) if self.folder else self._ranged_pieces(name, maximum):
                # Counted as it comes, whatever size the store has named.
                if len(piece) > bytes_left:
                    raise self._oversize_error(name, maximum)
                bytes_left -= len(piece)
                yield piece

    def _read_file(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file below the folder, a chunk at a time."""
        with open_listed(self.folder or Path(), name) as file:
            while piece := file.read(_CHUNK_BYTES):
                yield piece

    def _ranged_pieces(self, name: str, maximum: int) -> Iterator[bytes]:
        """Yield at most `RANGE_BYTES` bytes of each answer, so that each request may have an end in time.

        Raises:
            OversizeError: the object is larger than `maximum`.
        """
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        path, position, size = self.prefix + name, 0, 1
        while position < size:
            # The first request has no range: an empty object has none that could be asked for.
            response = obstore.get(
                self.store, path, options={"range": (position, min(position + RANGE_BYTES, size))} if position else {}
            )
            size, begin = response.meta["size"], position
            if size > maximum:
                raise self._oversize_error(name, maximum)
            for piece in response.stream(min_chunk_size=_CHUNK_BYTES):
                part = bytes(piece)[: begin + RANGE_BYTES - position]  # a store that ignores ranges sends more
                position += len(part)
                yield part
                if position == begin + RANGE_BYTES:
                    break
            if position == begin:  # an answer without a byte: no end would be in sight
                return

    def _oversize_error(self, name: str, maximum: int) -> OversizeError:
        return OversizeError(f"{self.url}/{name}: the object has more than the {maximum} bytes that were expected")

    def entries(self, folder: str = "") -> list[ObjectEntry]:
        """Return the objects whose names begin with the folder, folders below it included, by name.

        Those whose names nobody should write on a disk or a terminal are left out (`is_plain`).

        Raises:
            OddNameError: the client cannot read the list, because of such a name.
            StoreError: the store cannot be reached, or its list does not end.
        """
        with telling_store(self.url, "list"):
            if self.folder:
                files = list_files(self.folder / folder)
                listing = [
                    ObjectEntry(f"{folder}{file.name}", file.bytes, file.modified)
                    for file in self._limit_entries(files)
                ]
            else:
                listing = _run_coroutine(self._in_time(self._list_folder(folder)))
        return sorted((entry for entry in listing if is_plain(entry.name)), key=lambda entry: entry.name)

    def _limit_entries(self, entries: Iterable[T]) -> Iterator[T]:
        """Yield the entries of a listing, which may have no end.

        Raises:
            StoreError: there are more than `MAXIMUM_ENTRIES`.
        """
        for count, entry in enumerate(entries):
            if count >= MAXIMUM_ENTRIES:
                raise self._too_many_error()
            yield entry

    def _too_many_error(self) -> StoreError:
        return StoreError(f"{self.url}: there are more than {MAXIMUM_ENTRIES} objects. Give the URL of one run.")

    async def _list_folder(self, folder: str) -> list[ObjectEntry]:
        """Return the objects of a store below a folder, page by page, at most `MAXIMUM_ENTRIES`.

        Raises:
            StoreError: there are more objects.
        """
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        listing: list[ObjectEntry] = []
        # Pages are counted while they come: a list may have no end.
        async for page in obstore.list(self.store, self.prefix + folder or None, chunk_size=100):
            listing += [
                ObjectEntry(entry["path"].removeprefix(self.prefix), entry["size"], entry["last_modified"])
                for entry in page
            ]
            if len(listing) > MAXIMUM_ENTRIES:
                raise self._too_many_error()
        return listing

    async def _in_time(self, answer: Awaitable[T]) -> T:
        """Return the answer of a listing.

        Raises:
            StoreError: the listing takes longer than `REQUEST_SECONDS`.
        """
        try:
            return await asyncio.wait_for(answer, REQUEST_SECONDS)
        except TimeoutError:
            limit = format_duration(REQUEST_SECONDS)
            raise StoreError(f"{self.url}: listing fails (no end in {limit})") from None

    def find_entries(self, names: Iterable[str]) -> list[ObjectEntry]:
        """Return those of these objects that are there, each asked for by its name."""
        return [entry for name in names if (entry := self._find_entry(name))]

    def _find_entry(self, name: str) -> ObjectEntry | None:
        """Return the entry of one object; None if there is none of that name."""
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        try:
            with telling_store(self.url, "read"):
                if self.folder:
                    with open_listed(self.folder, name) as file:
                        status = os.fstat(file.fileno())
                    return ObjectEntry(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
                facts = obstore.head(self.store, self.prefix + name)
        except FileNotFoundError:
            return None
        return ObjectEntry(name, facts["size"], facts["last_modified"])

    def folders(self) -> list[str]:
        """Return the names that stand before a slash, sorted, if they are plain.

        Raises:
            OddNameError: the client cannot read the list, because of a name that is not.
            StoreError: the store cannot be reached, or its list does not end.
        """
        with telling_store(self.url, "list"):
            names = folder_names(self.folder) if self.folder else _run_coroutine(self._in_time(self._prefixes()))
        return sorted(name for name in names if is_plain(name))

    async def _prefixes(self) -> list[str]:
        """Return the names of the folders directly below."""
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        listing = await obstore.list_with_delimiter_async(self.store, self.prefix or None)
        return [name.rstrip("/").rpartition("/")[2] for name in listing["common_prefixes"]]

    def remove(self, names: list[str]) -> None:
        """Remove objects; missing objects are ignored."""
        import obstore  # noqa: PLC0415  (it takes long to import: only where a URL is used)

        for name in names:
            try:
                with telling_store(self.url, "remove"):
                    obstore.delete(self.store, self.prefix + name)
            except FileNotFoundError:
                continue  # it is gone, which was wanted

    def remove_unfinished(self, folder: str) -> None:
        """Remove leftovers of writers that were killed in a folder; other stores keep such things out of sight."""
        if self.folder:
            with explain_os_errors(self.folder):
                for path in (self.folder / folder).glob("*#*"):
                    if is_unfinished(path.name):
                        path.unlink(missing_ok=True)


def is_plain(name: str) -> bool:
    """Whether an object's name can be a file's, and stand on a terminal: parts that are printable, and no `..`."""
    parts = name.split("/")
    return (
        name.isprintable()
        and len(name.encode()) <= _NAME_BYTES
        and all(0 < len(part.encode()) <= _PART_BYTES and part not in {".", ".."} for part in parts)
    )


def _run_coroutine(answers: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, run in its own thread if the calling thread has a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answers)  # one loop for each list, closed with it
    with ThreadPoolExecutor(1, "store") as thread:
        return thread.submit(asyncio.run, answers).result()


def _bare_tag(tag: str | None) -> str:
    return (tag or "").strip('"')


def open_objects(url: str, retries: int = PATIENT) -> StoredObjects:
    """Return the objects below a URL; the store is not asked yet.

    Args:
        url: URL of a folder of objects.
        retries: number of tries of each request that fails without being refused, in 5 s or less.

    Raises:
        ConfigError: runs cannot be stored at the URL, or its store's settings cannot be used.
    """
    check_url(url)
    parts = urlsplit(url)
    path = unquote(parts.path).strip("/")
    prefix = f"{path}/" if path else ""
    return StoredObjects(url.rstrip("/"), _open_store(parts.scheme, parts.netloc, url, retries), prefix, retries)


def check_url(url: str) -> None:
    """Refuse a URL that names no folder of objects; no store is asked.

    Raises:
        ConfigError: runs cannot be stored at the URL; the message says why.
    """
    reason = next(_objections(url), "")
    if reason:
        raise ConfigError(f"{short_repr(url)}: {reason}. Expected {URL_FORMS}, without ? and #.")


def _objections(url: str) -> Iterator[str]:
    """Yield objections; each is looked for only where there is none before it."""
    try:
        parts = urlsplit(url)
        # Decoded first: `%2e%2e` is `..` as well.
        path = unquote(parts.path, errors="strict")
    except ValueError as error:
        yield str(error)
        return
    if mask_secrets(url) != url:
        credentials = EXPECTED_CREDENTIALS.get(parts.scheme, EXPECTED_CREDENTIALS["s3"])
        yield f"a URL is stored in records and must not have a key. Set {credentials}"
    if parts.scheme not in SCHEMES:
        yield f"the scheme is {short_repr(parts.scheme)}, expected one of {', '.join(SCHEMES)}"
    if parts.scheme == "file" and parts.netloc:
        yield f"a path on this machine begins with a slash, as in file:///{parts.netloc}"
    if parts.scheme == "file" and not path.strip("/"):
        yield "the URL has no folder; a variable may be empty"
    if parts.scheme != "file" and not parts.netloc:
        yield "the URL has no bucket; a variable may be empty"
    if not url.isprintable() or not path.isprintable():
        yield "the URL has control characters"
    if ".." in path.split("/"):
        yield "`..` is not allowed in a URL"
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        yield "a part after ? or # has no meaning for a store"


def _open_store(scheme: str, bucket: str, url: str, retries: int) -> "ObjectStore":
    """Return obstore's client of a bucket, or of the whole disk for `file`; the bucket is not asked yet.

    Args:
        scheme: `file`, `s3`, `gs` or `az`.
        bucket: name of the bucket; empty for `file`.
        url: whole URL, for messages.
        retries: tries of each request that fails without being refused.

    Raises:
        ConfigError: the store cannot be used before something is set or permitted.
        StoreError: the store's client cannot be made for another reason.
    """
    from obstore.exceptions import BaseError  # noqa: PLC0415  (it takes long to import: only where a URL is used)
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store  # noqa: PLC0415  (it takes long to import: only where a URL is used)

    if scheme == "file":
        return LocalStore("/")
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    settings, plain_http = client_settings(scheme)
    client = _CLIENT_OPTIONS | {"allow_http": plain_http}
    # Short pauses inside of a request: longer pauses belong to the caller, who can say that it waits.
    retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=30), "backoff": _BACKOFF}
    try:
        store: ObjectStore = kind(bucket, client_options=client, retry_config=retry, **settings)
    except (BaseError, ValueError) as error:
        with telling_store(url, "open"):
            raise error from None
        raise AssertionError from None
    return store
