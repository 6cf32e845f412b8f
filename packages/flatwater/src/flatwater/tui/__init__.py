"""The live screen of a run, made from its folder alone."""
