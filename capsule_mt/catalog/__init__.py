"""Models by name: catalogs that list them, downloads, and the cache.

Other subpackages mostly need `resolve`: it returns the folder of a model, and downloads the model first if necessary.
"""
