"""Analyse a model's routings and weights of layers: statistics, PAST and FUTURE, pictures."""
