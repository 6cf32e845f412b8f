"""The recipes that come with Flatwater; `recipe.py` has their table."""
