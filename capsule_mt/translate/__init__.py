"""Translate texts with one or two models, and score and align given translations."""
