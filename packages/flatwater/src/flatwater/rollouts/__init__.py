"""One [T, B] block of consecutive steps: allocated once, written in place."""
