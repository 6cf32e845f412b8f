"""Series of readings over time, and tests of whether they rise for good."""
