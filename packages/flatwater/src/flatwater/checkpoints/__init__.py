"""Exact checkpoints of a state tree: manifest, writer, reader, retention."""
