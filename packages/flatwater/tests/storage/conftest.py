"""The object store on loopback, for the tests of this folder."""

from object_store import bucket, object_store, store

__all__ = ["bucket", "object_store", "store"]
