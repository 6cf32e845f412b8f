"""Named presets: settings for an environment and a recipe, kept as data; `lookup.py` finds them."""
