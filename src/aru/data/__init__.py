"""From a user's frame to checked arrays and encoded rows, and back to a frame."""
