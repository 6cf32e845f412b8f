"""Learning from a teacher in a world of many agents: collect, update, evaluate."""
