"""What a search can be told (the table of options), and what a decoder gets of it. It imports no other room."""
