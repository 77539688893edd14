"""Container usage, computed from the metrics that cluster agents send."""
