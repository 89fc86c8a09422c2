"""From samples to throughput: roll-ups, on Spark or in this process, and what they say."""
