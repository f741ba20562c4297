"""The laboratory: the papers' tables, studies and benchmarks. It imports the package and nothing imports it."""
