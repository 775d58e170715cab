"""Pretraining of the networks that ship with the package: synthetic series in, weights out (not in the wheel)."""
