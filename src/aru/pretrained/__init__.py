"""Networks that were trained beforehand, on synthetic series alone, and their weights.

weights    the shipped weights: names, versions, checksums
patches    the network: past values in, quantiles of the next 64 steps out
robust     location and scale of a series that one outlier does not ruin
seasons    the periods that a network is told, from the frequency or from the values
ahead      forecasts of any length, in the user's units
zero_shot  the network as a method behind `aru.models.interface`
"""
