"""Looking at the models: how fast they are, and what their routings do."""
