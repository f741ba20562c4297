"""What a model's routings do: statistics, PAST and FUTURE, pictures."""
