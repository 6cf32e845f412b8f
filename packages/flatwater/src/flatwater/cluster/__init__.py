"""Workers: processes that compute shares of a round, and may die at any moment without a trace in the run."""
