"""Evolving policies, or training one, in any environment: settings, plan, run and score."""
