"""What several files of tests of this folder need."""

import os
import signal
from collections.abc import Iterator

import pytest

STORE = 100 << 20


@pytest.fixture(scope="module")
def cluster_store() -> Iterator[int]:
    """Bytes of the object store of three cores of this machine, as Ray sees them."""
    ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'flatwater[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    kept = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=3, object_store_memory=STORE, include_dashboard=False, log_to_driver=False)
    try:
        yield STORE
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, kept)
