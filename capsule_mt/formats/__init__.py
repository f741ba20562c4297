"""Files that are more than lines of text: read the texts to translate, and write the same kind of file back."""
