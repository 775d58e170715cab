"""Datasets of the paper and the demo, and free stand-ins for those that may not be redistributed.

`load(name)` returns a long frame, a static frame and a description. `DESCRIPTIONS` need no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from aru.datasets import electricity, nyc_flights, parts, rossmann, standins, synthetic, tourism, traffic, walmart
from aru.datasets.description import Dataset, Description, default_dir
from aru.errors import ConfigError, quoted

__all__ = ["DESCRIPTIONS", "Dataset", "Description", "default_dir", "load"]

_Loader = Callable[[Path, bool], Dataset]
_LOADERS: Mapping[str, tuple[Description, _Loader]] = MappingProxyType(
    {
        about.name: (about, loader)
        for about, loader in (
            (rossmann.ROSSMANN, rossmann.load),
            (walmart.WALMART, walmart.load),
            (electricity.ELECTRICITY, electricity.load),
            (traffic.TRAFFIC, traffic.load),
            (parts.PARTS, parts.load),
            (tourism.TOURISM, tourism.load),
            (synthetic.SYNTHETIC, lambda data_dir, check: synthetic.make()),
            (electricity.ELECTRICITY_10, electricity.load_10),
            (standins.GEFCOM2012, standins.load_gefcom2012),
            (standins.M4_HOURLY, standins.load_m4_hourly),
            (nyc_flights.NYC_FLIGHTS, nyc_flights.load_dataset),
        )
    }
)
DESCRIPTIONS: Mapping[str, Description] = MappingProxyType({name: about for name, (about, _) in _LOADERS.items()})


def load(name: str, data_dir: str | Path | None = None, check: bool = True) -> Dataset:
    """Read a dataset from `data_dir / name`; by default the folder ARU_DATA, else `../shared/data`.

    With `check`, files whose rows, series or sums differ from the published ones are refused.
    """
    if name not in _LOADERS:
        raise ConfigError(f"There is no dataset {quoted(name)}", f"Choose one of {', '.join(_LOADERS)}.")
    return _LOADERS[name][1](default_dir() if data_dir is None else Path(data_dir), check)
