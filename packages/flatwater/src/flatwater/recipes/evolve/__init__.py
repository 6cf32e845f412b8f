"""Evolving policies in any environment with continuous actions: settings, plan, run and score."""
