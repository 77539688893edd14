"""Tests of the console in a real Chromium against a real Tollhouse process."""
