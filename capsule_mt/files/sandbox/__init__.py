"""A child process for untrusted bytes, with limits of time and memory: of files to translate, and of models."""
