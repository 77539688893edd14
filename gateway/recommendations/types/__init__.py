"""The types of recommendations, one module each; `gateway.recommendations.list` has them in order."""
