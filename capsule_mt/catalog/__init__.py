"""Models by name: catalogs that list them, downloads, and the cache.

Other subpackages mostly need `model_folder`: it returns the folder of a model, downloaded first if necessary.
"""
