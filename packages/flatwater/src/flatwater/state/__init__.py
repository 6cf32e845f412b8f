"""The state tree: `@state` classes, their leaves, and named random generators."""
