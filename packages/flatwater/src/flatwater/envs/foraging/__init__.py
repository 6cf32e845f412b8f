"""A game of foraging and delivering on mettagrid: its configuration, its world, and a teacher that searches."""
