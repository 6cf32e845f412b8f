"""The part of the watch that runs inside the watched program: when it reads, what it keeps, what it reports."""
