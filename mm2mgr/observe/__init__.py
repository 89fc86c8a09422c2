"""Whether records arrive: reads Connect and Kafka, judges what was read, and remembers what one observation cannot show.

Start with `status`. `reader` and `status` do the I/O; everything else is pure.
"""
