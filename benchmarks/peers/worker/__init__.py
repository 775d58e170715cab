"""The side that runs in a peer's environment: numpy, pandas and the peer's own libraries, not aru."""
