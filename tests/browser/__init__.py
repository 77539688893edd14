"""The console in a real Chromium, on a real Tollhouse process: what an operator sees and does."""
