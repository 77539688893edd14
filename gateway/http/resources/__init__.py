"""
Resources that people and keys create, list and change. One file declares a resource; API, commands and
pages use it.
"""
