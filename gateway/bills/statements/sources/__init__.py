"""One file for each kind of report; `list.py` collects them."""
