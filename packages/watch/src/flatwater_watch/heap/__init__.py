"""Reading a heap: what objects hold, by path, without calling the code of the program."""
