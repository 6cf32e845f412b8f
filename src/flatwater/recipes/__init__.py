"""The recipes that come with Flatwater; `runs/recipe.py` has their table."""
