"""Frames in and out: a user's frame becomes checked arrays and encoded rows, forecasts become a frame."""
