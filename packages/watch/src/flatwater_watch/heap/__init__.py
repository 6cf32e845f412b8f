"""Reading a heap: the objects that each object holds, by path, without calling the program's code."""
