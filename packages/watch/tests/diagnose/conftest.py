"""What tests of the finder share."""

from collections.abc import Iterator

import pytest

from flatwater_watch.diagnose.lines import Tracer


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """Allocations are traced for as long as the test runs."""
    tracer = Tracer()
    tracer.start()
    yield tracer
    tracer.stop()
