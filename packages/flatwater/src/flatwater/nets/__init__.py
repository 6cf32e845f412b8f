"""Stacked networks: P members as one, with a leading member axis on every parameter."""
