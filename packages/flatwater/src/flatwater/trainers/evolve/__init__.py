"""A population of continuous policies in any environment: play and learn, evaluate, evolve."""
