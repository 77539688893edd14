"""Records as messages of Kafka topics, one transaction per delivery."""
