"""Models by name: which there are, downloading them, and the folder that keeps them.

`resolve` is all that others need: it returns the folder of a model, which it downloads first if it is not there.
"""
