"""What leaves over billing connections: hours of AI cost that were sent, and drops that were taken."""
