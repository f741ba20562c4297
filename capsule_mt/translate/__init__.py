"""How the options of one call become what a decoder gets."""
