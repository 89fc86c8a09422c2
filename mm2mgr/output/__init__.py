"""What people see: text and pages from the values that `-o json` prints. Results go to stdout, progress to stderr."""
