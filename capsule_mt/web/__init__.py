"""The engine as WebAssembly, and its JavaScript: models that translate in a browser and in node."""
