"""FOCUS rows of the costs that a person may see: counted costs, plans of assistants, and bills of providers."""
