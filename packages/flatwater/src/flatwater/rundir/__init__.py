"""The folder of a run: its files, read and written without torch."""
