"""Files as they are published, at small size: what a loader makes of them, and what it says when they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru import datasets
from aru.datasets import DESCRIPTIONS, load
from aru.errors import ConfigError, StorageError

ROSSMANN = {
    "train.csv": """"Store","DayOfWeek","Date","Sales","Customers","Open","Promo","StateHoliday","SchoolHoliday"
2,5,2015-07-31,6064,625,1,1,"0","1"
1,5,2015-07-31,5263,555,1,1,"0","1"
1,4,2015-07-30,0,0,0,1,"a","1"
1,3,2015-07-29,4782,523,1,1,0,"1"
2,3,2015-07-29,6222,650,1,0,"0","0"
""",
    "store.csv": """"Store","StoreType","Assortment","CompetitionDistance","CompetitionOpenSinceMonth",\
"CompetitionOpenSinceYear","Promo2","Promo2SinceWeek","Promo2SinceYear","PromoInterval"
1,"c","a",1270,9,2008,0,,,""
2,"a","a",570,6,2015,1,13,2010,"Jan,Apr,Jul,Oct"
""",
    "store_states.csv": "Store,State\n1,HE\n2,TH\n",
}


def write(folder: Path, name: str, files: dict[str, str]) -> Path:
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / file).write_text(text)
    return folder


def test_rossmann(tmp_path: Path) -> None:
    df, static, about = load("rossmann", write(tmp_path, "rossmann", ROSSMANN), check=False)
    assert df["unique_id"].tolist() == ["1", "1", "2", "2"]  # the closed day is left out
    assert df["y"].tolist() == [4782, 5263, 6222, 6064]
    assert df["closed_before"].tolist() == [0, 1, 0, 1]
    assert df["closed_after"].tolist() == [1, 0, 1, 0]
    assert df["competition"].tolist() == [24, 24, 1, 1]  # months, at most 24
    assert df["promo2"].tolist() == [0, 0, 1, 1]
    assert df["state_holiday"].tolist() == ["0"] * 4  # a category, whether quoted or not
    assert df["distance"].iloc[0] == pytest.approx(np.log1p(1270))
    assert static is not None
    assert static.to_dict("list") == {
        "unique_id": ["1", "2"],
        "store_type": ["c", "a"],
        "assortment": ["a", "a"],
        "state": ["HE", "TH"],
    }
    assert set(about.futr_exog_list) == set(df.columns) - {"unique_id", "ds", "y"}


def walmart_files(weeks: int = 40) -> dict[str, str]:
    """Two departments: one with a gap and a negative value, one that is too short."""
    days = [d.strftime("%Y-%m-%d") for d in pd.date_range("2010-02-05", periods=weeks, freq="W-FRI")]
    train = [f"1,7,{day},{100 + i if i != 5 else -3}.5,FALSE" for i, day in enumerate(days) if i not in (0, 9)]
    train += [f"1,8,{day},5,TRUE" for day in days[:20]]
    features = [
        f"1,{day},42.31,2.572,{'NA' if i < 3 else i},NA,NA,NA,NA,211.1,8.106,FALSE" for i, day in enumerate(days)
    ]
    heads = (
        "Store,Date,Temperature,Fuel_Price,MarkDown1,MarkDown2,MarkDown3,MarkDown4,MarkDown5,CPI,Unemployment,IsHoliday"
    )
    return {
        "train.csv": "\n".join(["Store,Dept,Date,Weekly_Sales,IsHoliday", *train]),
        "features.csv": "\n".join([heads, *features]),
        "stores.csv": "Store,Type,Size\n1,A,151315\n",
    }


def test_walmart(tmp_path: Path) -> None:
    df, static, _ = load("walmart", write(tmp_path, "walmart", walmart_files()), check=False)
    assert df["unique_id"].unique().tolist() == ["1_7"]
    assert len(df) == 39  # from its first value to the last week
    assert df["ds"].iloc[0] == pd.Timestamp("2010-02-12")
    assert df["y"].isna().to_numpy().nonzero()[0].tolist() == [4, 8]  # the negative value and the gap
    assert df["y"].iloc[0] == 101.5
    assert df["markdown1"].isna().sum() == 2
    assert df["markdown1"].iloc[-1] == 39
    assert df["is_holiday"].eq(0).all()
    assert static is not None
    assert static.to_dict("records") == [{"unique_id": "1_7", "type": "A", "size": 151315}]


def test_electricity(tmp_path: Path) -> None:
    stamps = pd.date_range("2014-01-01 00:15", periods=12, freq="15min")
    lines = ['"";"MT_001";"MT_002"']
    lines += [f'"{stamp}";{0 if i < 6 else 8};{i},5' for i, stamp in enumerate(stamps)]
    folder = write(tmp_path, "electricity", {"LD2011_2014.txt": "\n".join(lines)})
    df, static, _ = load("electricity", folder, check=False)
    assert static is None
    first, second = df[df["unique_id"] == "MT_001"], df[df["unique_id"] == "MT_002"]
    assert first["y"].tolist() == [4, 8]  # begins with the hour of its first value
    assert first["ds"].tolist() == [pd.Timestamp("2014-01-01 01:00"), pd.Timestamp("2014-01-01 02:00")]
    assert second["y"].tolist() == [2, 6, 10]  # decimal commas
    with pytest.raises(StorageError, match="holds 24 rows with a value instead of 51,894,720"):
        load("electricity", folder)


def test_ten_clients_out_of_the_large_file(tmp_path: Path) -> None:
    stamps = pd.date_range("2013-12-31 23:15", periods=8, freq="15min")
    names = [f"MT_{i:03d}" for i in range(1, 13)]
    lines = [";".join(['""', *(f'"{n}"' for n in names)])]
    lines += [";".join([f'"{stamp}"', *["1,5"] * len(names)]) for stamp in stamps]
    folder = write(tmp_path, "electricity_10", {"LD2011_2014.txt": "\n".join(lines)})
    df, _, _ = load("electricity_10", folder, check=False)
    assert df["unique_id"].tolist() == names[1:11]
    assert (df["ds"] == pd.Timestamp("2014-01-01")).all()


def traffic_files() -> tuple[dict[str, str], np.ndarray]:
    """Three days of two lanes, shuffled: Tuesday, Wednesday, and, after a holiday, Friday."""
    days = np.arange(3 * 2 * 144).reshape(3, 2, 144) / 1000
    weekdays, order = [2, 3, 5], [2, 0, 1]  # the file's first line is the last day

    def matrix(day: np.ndarray) -> str:
        return "[" + ";".join(" ".join(f"{v:.4f}" for v in row) for row in day) + "]"

    return {
        "PEMS_train": "\n".join(matrix(days[i]) for i in order[:2]) + "\n",
        "PEMS_test": matrix(days[order[2]]) + "\n",
        "PEMS_trainlabels": f"[{weekdays[2]} {weekdays[0]}]",
        "PEMS_testlabels": f"[{weekdays[1]}]",
        "randperm": f"[{' '.join(str(i + 1) for i in order)}]",
    }, days


def test_traffic(tmp_path: Path) -> None:
    files, days = traffic_files()
    df, _, _ = load("traffic", write(tmp_path, "traffic", files), check=False)
    assert df["unique_id"].unique().tolist() == ["lane-000", "lane-001"]
    lane = df[df["unique_id"] == "lane-001"]
    np.testing.assert_allclose(lane["y"], days[:, 1].reshape(3 * 24, 6).mean(axis=1), rtol=1e-4)
    assert lane["ds"].dt.normalize().unique().tolist() == [
        pd.Timestamp("2008-01-01"),
        pd.Timestamp("2008-01-02"),
        pd.Timestamp("2008-01-04"),
    ]
    assert lane["ds"].dt.hour.tolist() == list(range(24)) * 3


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("randperm", "[1 2 2]", "do not fit together"),
        ("PEMS_test", "[1 2; 3]", "line 1, is no matrix"),
        ("PEMS_test", "[1 2; 3 4]", "2 columns instead of 144"),
    ],
)
def test_broken_traffic_files_are_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    files, _ = traffic_files()
    with pytest.raises(StorageError, match=message):
        load("traffic", write(tmp_path, "traffic", {**files, file: text}), check=False)


def test_parts(tmp_path: Path) -> None:
    """Kept: complete, ten months with a sale, one of them in the last 15."""
    often = [1, 0] * 25 + [2]
    early = [3] * 30 + [0] * 21
    gap: list[object] = [*often]
    gap[7] = ""
    rows = {10: often, 11: early, 12: gap, 13: [0] * 45 + [1] * 6}
    months = [f"{y}-{m}" for y in range(1998, 2003) for m in range(1, 13)][:51]
    lines = [",".join(["Part", *months])] + [",".join(map(str, [part, *row])) for part, row in rows.items()]
    df, _, _ = load("parts", write(tmp_path, "parts", {"carparts.csv": "\n".join(lines)}), check=False)
    assert df["unique_id"].unique().tolist() == ["10"]
    assert df["y"].tolist() == often
    assert df["ds"].iloc[[0, -1]].tolist() == [pd.Timestamp("1998-01-01"), pd.Timestamp("2002-03-01")]


def test_tourism(tmp_path: Path) -> None:
    files = {
        "monthly_in.csv": "m1,m2\n3,2\n1999,2000\n11,1\n10,5.5\n11,6.5\n12,\n",
        "monthly_oos.csv": "m1,m2\n1,2\n2000,2000\n2,3\n13,7.5\n,8.5\n",
    }
    df, _, _ = load("tourism_monthly", write(tmp_path, "tourism_monthly", files), check=False)
    first = df[df["unique_id"] == "m1"]
    assert first["y"].tolist() == [10, 11, 12, 13]
    assert first["ds"].tolist() == pd.date_range("1999-11-01", periods=4, freq="MS").tolist()
    assert df[df["unique_id"] == "m2"]["y"].tolist() == [5.5, 6.5, 7.5, 8.5]


def test_a_tourism_series_cut_short_is_refused(tmp_path: Path) -> None:
    files = {"monthly_in.csv": "m1\n3\n1999\n11\n10\n", "monthly_oos.csv": "m1\n1\n2000\n2\n13\n"}
    with pytest.raises(StorageError, match="m1 has fewer than the 3 values"):
        load("tourism_monthly", write(tmp_path, "tourism_monthly", files), check=False)


@pytest.mark.parametrize("name", [n for n, about in DESCRIPTIONS.items() if about.source and not about.package])
def test_missing_files_are_named_with_their_source_and_place(tmp_path: Path, name: str) -> None:
    about = DESCRIPTIONS[name]
    with pytest.raises(StorageError) as error:
        load(name, tmp_path)
    for text in (*about.files, about.source, str(tmp_path / name)):
        assert text in str(error.value)


def test_one_missing_file_of_several_is_named(tmp_path: Path) -> None:
    files = {k: v for k, v in ROSSMANN.items() if k != "store.csv"}
    with pytest.raises(StorageError, match=r"\(store\.csv missing\)"):
        load("rossmann", write(tmp_path, "rossmann", files))


def test_a_part_of_a_file_is_refused_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds 5 rows with a value instead of 1,017,209"):
        load("rossmann", write(tmp_path, "rossmann", ROSSMANN))


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    files = {**ROSSMANN, "train.csv": "id,x\n1,2\n"}
    with pytest.raises(StorageError, match=r"train\.csv has no column Store, Date"):
        load("rossmann", write(tmp_path, "rossmann", files), check=False)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no dataset 'rossman'\. Choose one of rossmann, walmart"):
        load("rossman")


def test_synthetic_series_have_the_noise_and_the_parameters_asked_for() -> None:
    quiet = datasets.synthetic.make(gamma=20, noise=0.0, length=400, seed=3).df
    noisy = datasets.synthetic.make(gamma=20, noise=0.05, length=400, seed=3).df
    assert (noisy["y"] - quiet["y"]).std() == pytest.approx(0.05, rel=0.05)
    for _, part in quiet.groupby("unique_id"):
        x = np.column_stack([part["hour"], part["weekday"], np.ones(len(part))])
        theta, residual, *_ = np.linalg.lstsq(x, part["y"], rcond=None)
        assert residual.sum() < 1e-18
        assert (np.abs(theta) <= 20).all()
    assert datasets.synthetic.make(gamma=1, noise=0.0, length=50).df["y"].abs().max() <= 3
