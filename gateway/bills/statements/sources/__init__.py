"""One module per kind of report; `list.py` lists them all."""
