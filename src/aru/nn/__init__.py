"""Building blocks of networks: the cell and its solve, layers, distributions, windows, ONNX sessions."""
