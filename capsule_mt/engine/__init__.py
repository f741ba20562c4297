"""The engine: programs, the C library that runs them, and searching with it."""
