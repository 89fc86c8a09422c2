"""What Kafka does with a key: every config key of each supported Kafka line, read out of its real jars."""
