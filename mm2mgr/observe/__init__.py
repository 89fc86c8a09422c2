"""Whether records arrive: reads Connect and Kafka, judges it, and remembers what one observation cannot show.

Start with `status`, which alone does I/O.
"""
