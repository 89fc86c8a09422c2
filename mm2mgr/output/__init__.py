"""What people see: text and pages from the same `to_dict()` values that `-o json` prints. Results go to stdout, progress to stderr."""
