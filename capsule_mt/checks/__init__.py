"""Checks: faults of a translation that rules find by comparing it with its text, without a model."""
