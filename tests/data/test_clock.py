"""Time zones: what is kept, what comes back, and that both hours of the autumn night exist."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aru.data.clock import Clock, from_index, known_zone
from aru.data.columns import as_frame
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.guess import guess_frequency
from aru.data.panel import Panel, read_panel
from aru.data.plain import read_plain
from aru.errors import AruWarning, ColumnError, FrequencyError

BERLIN = "Europe/Berlin"
NIGHT = pd.date_range("2024-10-26 22:00", periods=8, freq="h", tz="UTC").tz_convert(BERLIN)  # 02:00 comes twice
FREE = "2024-10-27 02:00"


def frame(ds: Any, **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.arange(len(ds), dtype=float), **more})


def kept(df: Any, freq: str | int | None, zone: str | None) -> list[str]:
    """Internal times, as they would be without a zone."""
    panel = read_panel(df, Frequency(freq, zone))
    return panel.ds.view("datetime64[us]").astype("datetime64[m]").astype(str).tolist()


UTC_HOURS = [f"2024-10-{26 + (22 + i) // 24}T{(22 + i) % 24:02}:00" for i in range(8)]
WAYS = {
    "pandas": frame(NIGHT),
    "polars": pl.from_pandas(frame(NIGHT)),
    "other zone": frame(NIGHT.tz_convert("America/New_York")),
    "fixed offset": frame(NIGHT.tz_convert(dt.timezone(dt.timedelta(hours=5)))),
    "objects": frame(pd.Series([t.to_pydatetime() for t in NIGHT], dtype=object)),
    "offsets": frame([t.isoformat() for t in NIGHT]),
    "Z": frame([t.tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ") for t in NIGHT]),
    "mixed": frame(
        [t.isoformat() if i % 2 else t.tz_convert("UTC").strftime("%Y%m%dT%H%MZ") for i, t in enumerate(NIGHT)]
    ),
    "dictionary": {"unique_id": ["a"] * 8, "ds": [t.isoformat() for t in NIGHT], "y": np.ones(8)},
}


@pytest.mark.parametrize("way", WAYS)
def test_hours_are_kept_in_utc(way: str) -> None:
    assert kept(WAYS[way], "h", BERLIN) == UTC_HOURS
    assert kept(WAYS[way], None, BERLIN) == UTC_HOURS


@pytest.mark.parametrize("way", [w for w in WAYS if w != "Z"])
def test_a_model_without_a_zone_converts_to_utc_and_says_so(way: str) -> None:
    with pytest.warns(
        AruWarning, match=r"times with a zone, and training had none: they are converted to UTC\."
    ) as told:
        assert kept(WAYS[way], "h", None) == UTC_HOURS
    assert len(told) == 1


def test_z_needs_no_warning() -> None:
    assert kept(WAYS["Z"], "h", None) == UTC_HOURS


@pytest.mark.parametrize("zone", ["UTC", None, BERLIN])
def test_a_few_times_with_z_are_plain(zone: str | None) -> None:
    df = {
        "unique_id": np.array(["a", "b"], object),
        "ds": np.array(["2024-10-16T00:00:00Z"] * 2, object),
        "y": [1.0, 2.0],
    }
    plain = read_plain(df, Frequency("h", zone), ["y"])
    assert plain is not None
    assert plain.ds.tolist() == read_panel(pd.DataFrame(df), Frequency("h", zone)).ds.tolist()
    assert (read_plain(df, Frequency("D", zone), ["y"]) is None) == (zone is not None)
    local = {**df, "ds": [FREE] * 2}
    assert (read_plain(local, Frequency("h", zone), ["y"]) is None) == (zone is not None)


def test_times_without_a_zone_are_those_of_training() -> None:
    assert kept(frame(["2024-07-01 12:00"]), "h", BERLIN) == ["2024-07-01T10:00"]
    assert kept(frame(pd.DatetimeIndex(["2024-07-01 12:00"])), "h", BERLIN) == ["2024-07-01T10:00"]
    assert kept(frame(["2024-07-01 12:00", "2024-07-01T13:00+02:00"]), "h", BERLIN)[1] == "2024-07-01T11:00"
    for ds in ([FREE], pd.DatetimeIndex([FREE]), ["2024-03-31 02:30"]):
        with pytest.raises(ColumnError, match=rf"occur twice or never in {BERLIN}: \(a, .*02:.*\+02:00"):
            kept(frame(ds), "h", BERLIN)


def test_days_are_those_of_the_zone() -> None:
    """In UTC they would begin at 23:00 in winter and at 22:00 in summer."""
    days = pd.date_range("2024-10-20", periods=14, tz=BERLIN)
    midnights = [f"2024-{d:%m-%d}T00:00" for d in days]
    for freq in ("D", "W-SUN"):
        some = days[::7] if freq == "W-SUN" else days
        assert kept(frame(some), freq, BERLIN) == midnights[:: 7 if freq == "W-SUN" else 1]
        assert kept(frame(some.tz_convert("UTC")), freq, BERLIN) == midnights[:: 7 if freq == "W-SUN" else 1]
    with pytest.raises(FrequencyError, match="do not lie on the grid"):
        kept(frame(days.tz_convert("UTC")), "D", "UTC")


@pytest.mark.parametrize("backend", ["pandas", "polars"])
@pytest.mark.parametrize("unit", ["us", "ns", "ms"])
@pytest.mark.parametrize("freq", ["h", "D", None])
def test_what_comes_back_is_what_came(backend: str, unit: Any, freq: str | None) -> None:
    times = pd.date_range("2024-10-20", periods=14, tz=BERLIN) if freq == "D" else NIGHT
    df = frame(times.as_unit(unit))
    df = df if backend == "pandas" else pl.from_pandas(df)
    style = FrameStyle.of(df)
    assert style.zone == BERLIN
    frequency = Frequency(freq, style.zone)
    panel: Panel = read_panel(df, frequency)
    out = style.on(frequency).build({"unique_id": panel.ids[panel.series].to_numpy(), "ds": panel.ds, "y": panel.y})
    if backend == "pandas":
        assert out["ds"].dtype == df["ds"].dtype
        assert out["ds"].tolist() == df["ds"].tolist()
    else:
        assert out["ds"].dtype == df["ds"].dtype
        assert out["ds"].equals(df["ds"])


def test_rows_are_shown_in_their_zone() -> None:
    panel = read_panel(frame(NIGHT), Frequency("h", BERLIN))
    assert str(panel.name_rows([2, 3])) == "(a, 2024-10-27 02:00:00+02:00), (a, 2024-10-27 02:00:00+01:00)"


def test_calendars_are_local() -> None:
    clock = Clock(BERLIN)
    ds = from_index(NIGHT.tz_convert("UTC").tz_localize(None))
    assert (clock.local(ds) // 3_600_000_000 % 24).tolist() == [0, 1, 2, 2, 3, 4, 5, 6]
    assert Clock().local(ds) is ds
    assert Clock(BERLIN, wall=True).local(ds) is ds


def test_offsets_have_no_name() -> None:
    assert known_zone(BERLIN) == BERLIN
    assert [known_zone(name) for name in ("UTC+05:00", "pytz.FixedOffset(60)", "+02:00", "nowhere", "../x")] == [
        "UTC"
    ] * 5


def test_the_frequency_is_guessed_by_the_clocks_of_the_zone() -> None:
    days = frame(pd.date_range("2024-10-20", periods=14, tz=BERLIN))
    assert guess_frequency(as_frame(days, "df"), "df") == "D"
    assert guess_frequency(as_frame(frame(NIGHT), "df"), "df") == "h"
