"""A folder for the front of PYTHONPATH: Python imports its `sitecustomize` before any program."""
