"""What people see: text from the same `to_dict()` values that `-o json` prints. Results on stdout, talk on stderr."""
