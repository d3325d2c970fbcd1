"""Benchmarks of the Python package: `python -m hps.bench train`."""
