"""Scheduled reports: the weekly or monthly costs of a view by mail or chat."""
