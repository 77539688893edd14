"""What containers used, read from the metrics that agents of clusters send."""
