"""Insights: detectors read the facts of the last weeks and report what an organization should change."""
