"""Records as messages of Kafka topics, each delivery as one transaction."""
