"""Training on a folder of Parquet files: what a frame in memory gives, with one part in memory at a time."""

from __future__ import annotations

import gc
import importlib
import weakref
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru.data.naming import Names
from aru.data.panel import Panel
from aru.errors import AruWarning, ColumnError, InputError
from aru.training import history
from tests.making import make, make_settings
from tests.shops import BASE, COVARIATES, TRAINED, both

pytestmark = pytest.mark.usefixtures("in_torch")

IDS = "abcdefgh"
STATIC = pd.DataFrame({"unique_id": list(IDS), "kind": list("xyxyxyxz")})


def write(df: pd.DataFrame, folder: Path, shards: int = 4, files: int = 2) -> Path:
    """Partitioned by a hash of the series, several files a shard."""
    shard = df["unique_id"].map(lambda uid: zlib.crc32(str(uid).encode()) % shards)
    for number, part in df.groupby(shard):
        (folder / f"shard={number}").mkdir(parents=True)
        for i in range(files):
            part.iloc[i::files].to_parquet(folder / f"shard={number}" / f"{i}.parquet")
    return folder


def test_a_folder_that_fits_into_one_part_trains_like_its_frame(tmp_path: Path) -> None:
    df = both(range(TRAINED), IDS)
    folder = write(df, tmp_path / "data")
    settings = {**BASE, **COVARIATES, "max_steps": 6}
    one = make(**settings).fit(df, STATIC, val_size=3)
    other = make(**settings).fit(folder, STATIC, val_size=3)
    plan = both(range(TRAINED, TRAINED + 3), IDS)
    pd.testing.assert_frame_equal(one.predict(plan), other.predict(plan), check_exact=True)
    assert one.val_loss == other.val_loss
    assert one.runtime.engine.fingerprint == other.runtime.engine.fingerprint


def test_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every series is trained on and scored; the states have consumed all rows; two parts never meet in memory."""
    df = both(range(TRAINED), IDS)
    folder = write(df, tmp_path / "data")
    monkeypatch.setattr(history, "PART_ROWS", 2 * TRAINED)
    alive: list[weakref.ref[Panel]] = []
    read = history.History._read

    def spy(self: history.History, frame: Any) -> Panel:
        gc.collect()
        assert not any(ref() is not None for ref in alive)
        assert len(frame) <= 3 * TRAINED
        panel = read(self, frame)
        alive.append(weakref.ref(panel))
        return panel

    monkeypatch.setattr(history.History, "_read", spy)
    importlib.import_module("aru.training.run")
    gc.freeze()  # so that collections look at nothing but what training makes
    f = make(**{**BASE, **COVARIATES, "max_steps": 30, "batch_size": 2}).fit(folder, STATIC, val_size=3)
    gc.unfreeze()
    assert len(alive) > 4
    assert sorted(f.ids) == list(IDS)
    assert np.isfinite(f.val_loss)
    schema = f.runtime.engine.schema
    assert schema.stat[1][0].values == ("x", "y", "z")
    assert schema.hist[0][0].low == pytest.approx(df.groupby("unique_id").head(TRAINED - 3)["temp"].min())
    replay = f.without_series()
    monkeypatch.setattr(history.History, "_read", read)
    replay.update(df, STATIC)
    plan = both(range(TRAINED, TRAINED + 3), IDS)
    pd.testing.assert_frame_equal(
        f.predict(plan).sort_values(["unique_id", "ds"], ignore_index=True), replay.predict(plan), rtol=1e-5
    )


def test_checkpoints_of_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to the rows and to how these lie in parts."""
    df = both(range(TRAINED), IDS)
    folder = write(df, tmp_path / "data")
    monkeypatch.setattr(history, "PART_ROWS", 2 * TRAINED)
    settings = {**BASE, "max_steps": 2, "batch_size": 2}
    first = make(**settings).fit(folder, checkpoint_dir=tmp_path / "kept")
    again = make(**settings).fit(folder, checkpoint_dir=tmp_path / "kept")  # warnings are errors
    pd.testing.assert_frame_equal(first.predict(), again.predict(), check_exact=True)
    with pytest.warns(AruWarning, match="other training data"):
        make(**settings).fit(df, checkpoint_dir=tmp_path / "kept")


def halves(df: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    first = df["unique_id"] < "e"
    return df[first], df[~first]


WHOLE = both(range(TRAINED), IDS).assign(y=lambda df: df["y"].round())


@pytest.mark.parametrize("other_first", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda df: df.astype({"y": "int64"}), id="integers"),
        pytest.param(lambda df: df.astype({"y": "int32"}), id="small integers"),
        pytest.param(lambda df: df.astype({"y": "float32"}), id="single precision"),
        pytest.param(lambda df: df[df.columns[::-1]], id="another order of columns"),
        pytest.param(lambda df: df.astype({"ds": "datetime64[ms]"}), id="another unit of time"),
        pytest.param(lambda df: df.assign(note="x"), id="a further column"),
        pytest.param(lambda df: df.astype({"unique_id": "category"}), id="names as categories"),
        pytest.param(lambda df: df.set_index("unique_id"), id="names as index"),
        pytest.param(lambda df: df.set_index(np.arange(len(df)) + 5), id="an index of its own"),
    ],
)
def test_files_may_differ_in_what_does_not_matter(tmp_path: Path, other: Any, other_first: bool) -> None:
    parts = [half.astype({"ds": "datetime64[us]"}) for half in halves(WHOLE)]
    at = 0 if other_first else 1
    parts[at] = other(parts[at])
    for i, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{i}.parquet")
    (found,) = history.ParquetParts(tmp_path, [], Names())
    assert list(found) == ["unique_id", "ds", "y"]
    pd.testing.assert_frame_equal(
        found.astype({"ds": "datetime64[ns]", "unique_id": object, "y": float}),
        WHOLE[list(found)].astype({"ds": "datetime64[ns]", "unique_id": object}).reset_index(drop=True),
    )


def test_a_folder_of_files_that_differ_is_trained_on(tmp_path: Path) -> None:
    one, other = halves(WHOLE)
    one.astype({"y": "int64"}).to_parquet(tmp_path / "0.parquet")
    other[["y", "ds", "unique_id"]].assign(note="x").to_parquet(tmp_path / "1.parquet")
    settings = {**BASE, "max_steps": 2}
    pd.testing.assert_frame_equal(
        make(**settings).fit(tmp_path).predict(), make(**settings).fit(WHOLE).predict(), check_dtype=False
    )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda df: df.drop(columns="y"), r"1\.parquet has no column 'y'; it has unique_id, ds"),
        (
            lambda df: df.assign(unique_id=1),
            r"'unique_id' is int64 in .*1\.parquet, and (large_)?string in the files bef",
        ),
        (lambda df: df.assign(ds=df["ds"].astype(str)), r"'ds' is (large_)?string in .*1\.parquet, and timestamp"),
        (lambda df: df.assign(y=2**60 + 1), r"'y' of .*1\.parquet does not fit into double"),
        (lambda df: df.assign(ds=df["ds"].dt.tz_localize("UTC")), r"'ds' is timestamp\[.*UTC\] in .*1\.parquet"),
    ],
)
def test_files_that_do_not_fit_together_are_named(tmp_path: Path, other: Any, says: str) -> None:
    for i, part in enumerate(halves(WHOLE)):
        (other(part) if i else part).to_parquet(tmp_path / f"{i}.parquet")
    with pytest.raises(ColumnError, match=says):
        make(**BASE).fit(tmp_path)


def test_folders_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has no Parquet files"):
        make(**BASE).fit(tmp_path)
    df = both(range(TRAINED), IDS)
    folder = tmp_path / "split"
    folder.mkdir()
    monkeypatch.setattr(history, "PART_ROWS", 1)
    for i in range(2):
        df.iloc[i::2].to_parquet(folder / f"{i}.parquet")
    with pytest.raises(InputError, match=r"series a, b, .* lie in several parts\. Partition"):
        make(**BASE).fit(folder)
    df[df["unique_id"] == "a"].assign(unique_id=1).to_parquet(folder / "0.parquet")
    with pytest.raises(ColumnError, match="unique_id has one type in some parts"):
        make(**BASE).fit(folder)
    (folder / "0.parquet").write_text("text")
    with pytest.raises(InputError, match="cannot be read"):
        make(**BASE).fit(folder)


def test_the_typical_size_is_sampled_from_many_parts() -> None:
    from aru.data import learning

    sample = learning._Sample()
    values = np.random.default_rng(0).gamma(2.0, 3.0, 3 * learning.SAMPLE)
    for part in np.split(values, 6):
        sample.add(part)
    assert len(sample.values()) <= learning.SAMPLE
    assert np.median(sample.values()) == pytest.approx(np.median(values), rel=0.01)


def test_a_batch_is_shared_out_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they have the batch that one process would have."""
    from aru.errors import ConfigError
    from aru.training import batches

    class Lengths:
        val_size = withheld = 0
        part_lengths = [torch.full((7,), 20), torch.full((5,), 30)]  # noqa: RUF012

        def part(self, index: int) -> Any:
            raise NotImplementedError

    def draw(rank: int, processes: int, size: int = 3) -> list[batches.Batch]:
        monkeypatch.setattr(batches.dist, "is_initialized", lambda: processes > 1)
        monkeypatch.setattr(batches.dist, "get_rank", lambda: rank)
        monkeypatch.setattr(batches.dist, "get_world_size", lambda: processes)
        drawn = iter(batches.Batches(Lengths(), make_settings(**{**BASE, "batch_size": size}), seed=0))
        return [next(drawn) for _ in range(12)]

    assert {b.part for b in draw(0, 1)} == {0, 1}
    for whole, first, second in zip(draw(0, 1), draw(0, 2), draw(1, 2), strict=True):
        assert (whole.part, whole.rows, whole.phase) == (first.part, first.rows, first.phase)
        for name in ("series", "cold_start_row", "begin"):
            together = torch.cat([getattr(first, name), getattr(second, name)]).sort().values
            assert torch.equal(together, getattr(whole, name).sort().values)
    with pytest.raises(ConfigError, match="3 series for 4 processes"):
        draw(0, 4)
