"""A multilingual encoder in the engine as a witness: what anybody's translation leaves out, or makes up."""
