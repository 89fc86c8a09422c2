"""The demo: declare, measure, size, plan, apply and prove, on real Kafka, Connect and Spark of this machine."""
