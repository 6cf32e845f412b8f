"""Other people's programs: the runner, the hooks, the callbacks, the pytest plugin. The program stays as it is."""
