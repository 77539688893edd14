"""`tollhouse prices`: shows the list prices of a model, and loads newer lists."""
