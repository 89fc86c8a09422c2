"""The demo: the whole main job on real Kafka, Connect and Spark of this machine, through the same code as the commands."""
