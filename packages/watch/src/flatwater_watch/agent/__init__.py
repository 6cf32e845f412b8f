"""Inside a watched program: when to look, what to keep, what was seen."""
