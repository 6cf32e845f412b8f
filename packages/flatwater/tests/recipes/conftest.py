"""What several files of tests of this folder need."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "envs"), str(TESTS / "trainers")]  # for `stateful`, `trees` and `watchers`

STORE = 100 << 20


@pytest.fixture(autouse=True)
def _no_picture(unpainted: None) -> None:
    """Of hundreds of runs."""
    assert unpainted is None


@pytest.fixture(scope="module")
def _ray() -> Iterator[ModuleType]:
    ray: ModuleType = pytest.importorskip("ray", reason="Ray is an extra: pip install 'flatwater[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield ray
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, kept)


@pytest.fixture
def cluster_store(_ray: ModuleType) -> int:
    """Bytes of the object store of three cores of this machine, as Ray sees them. A test may have shut Ray down."""
    if not _ray.is_initialized():
        _ray.init(num_cpus=3, object_store_memory=STORE, include_dashboard=False, log_to_driver=False)
    return STORE
