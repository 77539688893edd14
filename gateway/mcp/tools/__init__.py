"""The tools of assistants, one file each; `list` names them all."""
