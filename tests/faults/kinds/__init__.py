"""Upgrades of records of every kind that earlier versions kept."""
