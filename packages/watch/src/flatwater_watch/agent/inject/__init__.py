"""The folder that goes to the front of PYTHONPATH: Python imports its `sitecustomize` before any program."""
