"""Analyse a model's routings: statistics, PAST and FUTURE, pictures."""
