"""Is data really arriving? Reading the estate, judging what was read, and remembering what a single look cannot show.

`status` is the entrance; `reader` and `state` do the I/O, the rest is pure.
"""
