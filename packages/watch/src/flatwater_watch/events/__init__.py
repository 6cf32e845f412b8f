"""Events of runs and watches, for listeners and for the user's own command."""
