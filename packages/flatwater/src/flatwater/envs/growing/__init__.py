"""Environments that are networks in training: E hosts with slots, grown by an agent, in one arena."""
