"""Our metrics as modules of the library `evaluate`, each in a folder of its own, which is what it loads."""
