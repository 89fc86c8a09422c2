"""Is data really arriving? Reading the estate, judging what was read, and remembering what a single look cannot show.

`status` is the entrance; `reading`, `lag`, `problems`, `health` and `describe` are pure; `reader` and `memory` do the I/O.
"""
