"""Files that are built to be hostile: see README.md."""
