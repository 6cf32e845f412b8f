"""Workers: processes that compute shares of a round, and may die at any moment without changing the run's numbers."""
