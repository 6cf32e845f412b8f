"""The copy of a run folder at a URL: sent while the run trains, listed, fetched and pruned."""
