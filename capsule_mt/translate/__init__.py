"""`Translator`: one model or two, from texts to `Translation`s, and what a model says of given translations."""
