"""Pictures and pages made from a run folder alone."""
