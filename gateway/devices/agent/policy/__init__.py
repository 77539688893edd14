"""
`tollhouse agent policy`: managed settings of coding assistants, as a bundle that an MDM distributes.

`targets` is the table of assistants and systems, `bundle` makes the files, and `applied` checks a bundle and
writes or deletes its files on a device.
"""
