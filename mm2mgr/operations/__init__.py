"""One plain function for each operation, with a result value: the library that the command line, `serve`, notebooks and CI call."""
