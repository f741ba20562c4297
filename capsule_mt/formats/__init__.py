"""Files that are more than lines of text: read what is to be translated, and write the same kind of file back."""
