"""Bodies of every type: what is read from them, and what is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from aru import Forecaster, Stream
from aru.data.missing import MISSING_TEXT
from aru.serve.tables import ARROW
from tests.making import make
from tests.shops import BASE, STATIC, TRAINED, H, both, rows

from .conftest import NOTHING, Serve, arrow, as_json, assert_same_forecasts, day, error_of, forecast


@pytest.mark.parametrize(
    ("change", "status", "kind", "says"),
    [
        ({"y": "12"}, 422, "SchemaError", "form"),
        ({"y": True}, 422, "SchemaError", "form"),
        ({"unique_id": None}, 422, "SchemaError", "form"),
        ({"unique_id": ""}, 422, "SchemaError", "form"),
        ({"unique_id": 5}, 422, "ColumnError", "unique_id of observations must be a string"),
        ({"ds": 20240121}, 422, "ColumnError", "ds of observations must be a string"),
        ({"ds": "soon"}, 422, "ColumnError", "cannot be read as timestamps"),
        ({"ds": "2024-01-21T00:00:0Z"}, 422, "ColumnError", "cannot be read as timestamps"),
        ({"ds": "2024-01-21T00:00:00+07:00"}, 422, "FrequencyError", "do not lie on the grid"),
        ({"ds": "2099-01-01"}, 422, "JumpError", "(b, 2099-01-01). Times up to 2024-04-"),
        ({"y": 1e308}, 422, "ValueRangeError", "larger than 1e+30"),
        ({"ds": "2024-01-21T05:00:00"}, 422, "FrequencyError", "do not lie on the grid"),
        ({"y": 1e999}, 422, "ValueRangeError", "infinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:ds of .* has times with a zone:aru.errors.AruWarning")
def test_bad_rows_are_refused(
    change: dict[str, Any], status: int, kind: str, says: str, serve: Serve, trained: Forecaster
) -> None:
    running = serve(trained, monitor=False)
    good = as_json(both([20]))
    body = json.dumps({"observations": [good[0], {**good[1], **change}]})
    answer = running.client.post("/v1/observations", content=body, headers={"content-type": "application/json"})
    error = error_of(answer, status, kind)
    assert says in error["message"]
    if kind == "SchemaError":
        assert error["rows"][0]["where"].startswith("observations.1.")
    assert [s["observations"] for s in running.client.get("/v1/series").json()["series"]] == [TRAINED] * 2


@pytest.mark.parametrize(
    ("body", "content", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"", "application/json", 400),
        (b"[]", "application/json", 422),
        (b'{"observations": []}', "application/json", 422),
        (b'{"observations": [], "colour": 1}', "application/json", 422),
        (b"", "text/csv", 400),
        (b"unique_id,ds,y\n", "text/csv", 422),
        (b"unique_id,ds\na,2024-01-21\n", "text/csv", 422),
        (b"unique_id,ds,y,y\na,2024-01-21,1,1\n", "text/csv", 422),
        (b"a,b\n1\n", "text/csv", 400),
        (b"\xff\xfe\xfd", "text/csv", 400),
        (b"unique_id,ds,y,\x8b\na,2024-01-21,x,1\n", "text/csv", 400),
        (b"unique_id,ds,y\n,2024-01-21,1\n", "text/csv", 422),
        (b"," * 2000 + b"\n", "text/csv", 400),
        (b"nothing of the kind", ARROW, 400),
        (b"", ARROW, 400),
        (b"x", "text/plain", 415),
        (b'{"observations": [{"unique_id": "a", "ds": "2024-01-21", "y": 1}]}', "", 415),
    ],
)
def test_bad_bodies_are_refused(body: bytes, content: str, status: int, serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, monitor=False)
    headers = {"content-type": content} if content else {}
    for path in ("/v1/observations", "/v1/forecasts")[: 2 if status in (400, 415) and body else 1]:
        answer = running.client.post(path, content=body, headers=headers)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["message"]
    assert running.client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("unique_id,ds,y\na,2024-01-21,1\nb,2024-01-21,x\na,2024-01-22,NA\n", "'y' of observations must be a number; "
         "it is not in row 1 ('x')"),
        ("unique_id,ds,y\na,05/06/2024,1\n", "(a, 05/06/2024) in row 0. Write ISO times"),
        ("unique_id,ds,y\na,now,1\n", "(a, now) in row 0. Write ISO times"),
        (f"unique_id,ds,y\na,2024-01-21,1\n{'x' * 501},2024-01-21,1\n", "have 500 characters; it has more in row 1"),
    ],
    ids=["no number", "no ISO date", "the clock", "long id"],
)  # fmt: skip
def test_bad_rows_of_csv_are_refused_as_those_of_json(body: str, says: str, serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, monitor=False)
    answer = running.client.post("/v1/observations", content=body, headers={"content-type": "text/csv"})
    assert says in error_of(answer, 422, "ColumnError")["message"]
    sent = [dict(zip(("unique_id", "ds", "y"), line.split(","), strict=True)) for line in body.splitlines()[1:]]
    for row in sent:
        row["y"] = {"1": 1, "NA": None}.get(row["y"], row["y"])
    assert running.client.post("/v1/observations", json={"observations": sent}).status_code == 422
    assert [s["observations"] for s in running.client.get("/v1/series").json()["series"]] == [TRAINED] * 2


def test_static_covariates_that_contradict_each_other_are_refused_in_every_format(
    serve: Serve, rich: Forecaster
) -> None:
    running = serve(rich, monitor=False)
    new = both([20, 21], "no").merge(STATIC, on="unique_id")
    bad = new.assign(kind=["x", "y", "y", "y"])
    static = [{"unique_id": "n", "kind": "x"}, {"unique_id": "n", "kind": "y"}, {"unique_id": "o", "kind": "y"}]
    observations = as_json(bad, "unique_id", "ds", "y", "promo", "temp")
    answers = [running.client.post("/v1/observations", json={"observations": observations, "static": static})]
    for content, body in (("text/csv", bad.to_csv(index=False)), (ARROW, arrow(bad))):
        answers.append(running.client.post("/v1/observations", content=body, headers={"content-type": content}))
    messages = {error_of(answer, 422, "DuplicateError")["message"] for answer in answers}
    assert len(messages) == 1
    assert "several rows for the series n" in messages.pop()
    new.loc[[0, 1], "kind"] = None  # not known, twice
    answer = running.client.post(
        "/v1/observations", content=new.to_csv(index=False), headers={"content-type": "text/csv"}
    )
    assert answer.json()["new_series"] == ["n", "o"]


def test_integers_beyond_64_bits_are_refused(serve: Serve) -> None:
    frame = pd.DataFrame({"unique_id": np.repeat([3, 10], 12), "ds": [*range(0, 24, 2)] * 2, "y": np.arange(24.0)})
    running = serve(make(**{**BASE, "freq": 2}).fit(frame), monitor=False)
    for column in ("unique_id", "ds"):
        row = pd.DataFrame({"unique_id": [3], "ds": [24], "y": [1.0]})
        row[column] = np.array([2**63 + 7], np.uint64)
        for content, body in (("text/csv", row.to_csv(index=False)), (ARROW, arrow(row))):
            answer = running.client.post("/v1/observations", content=body, headers={"content-type": content})
            message = error_of(answer, 422, "ColumnError")["message"]
            assert f"{column} of observations must fit into 64 bits" in message
            assert f"row 0 ({2**63 + 7}" in message.replace("'", "")


def test_csv_and_arrow(serve: Serve, rich: Forecaster) -> None:
    by_csv, by_arrow, stream = serve(rich), serve(rich), Stream(rich)
    new = both([20, 21, 22], "abno").merge(STATIC, on="unique_id").assign(other=1)
    new.loc[3, ["promo", "temp", "y"]] = [None, np.nan, np.nan]
    expected = stream.update(new, STATIC)
    for running, body, content in (
        (by_csv, new.to_csv(index=False), "text/csv; charset=utf-8"),
        (by_arrow, arrow(new), ARROW),
    ):
        answer = running.client.post("/v1/observations", content=body, headers={"content-type": content})
        assert answer.json() == NOTHING | {"applied": expected.applied, "new_series": ["n", "o"]}
        again = running.client.post("/v1/observations?late=skip", content=body, headers={"content-type": content})
        assert again.json()["duplicates"] == expected.applied
    futr = both([23, 24, 25], "abno")[["unique_id", "ds", "promo"]]
    wanted = stream.predict(futr, [80, 95], ["o", "a"])
    query = {"unique_id": ["o", "a"], "level": [80, 95]}
    headers = {"content-type": "text/csv", "accept": "text/csv"}
    answer = by_csv.client.post("/v1/forecasts", params=query, content=futr.to_csv(index=False), headers=headers)
    assert answer.headers["content-type"].startswith("text/csv")
    assert_same_forecasts(pd.read_csv(io.BytesIO(answer.content), parse_dates=["ds"]), wanted)
    headers = {"content-type": ARROW, "accept": f"{ARROW}, */*;q=0.1"}
    answer = by_arrow.client.post("/v1/forecasts", params=query, content=arrow(futr), headers=headers)
    assert answer.headers["content-type"] == ARROW
    assert_same_forecasts(pa.ipc.open_stream(answer.content).read_pandas(), wanted)


def test_bools_are_the_same_in_every_format(serve: Serve) -> None:
    def flagged(days: Any) -> pd.DataFrame:
        return both(days).assign(promo=lambda df: df["promo"] == "yes")

    model = make(**BASE, futr_exog_list=["promo"]).fit(flagged(range(TRAINED)))
    running = serve(model, monitor=False)
    futr = flagged(range(TRAINED, TRAINED + H))[["unique_id", "ds", "promo"]]
    assert futr["promo"].nunique() == 2
    futr["promo"] = futr["promo"].astype(object)
    futr.loc[4, "promo"] = None
    expected = Stream(model).predict(futr, ids=["a", "b"])
    assert expected["aru"].tolist() != Stream(model).predict(futr.assign(promo=None), ids=["a", "b"])["aru"].tolist()
    for yes, no in ((True, False), ("true", "false"), ("TRUE", "FALSE"), ("1", "0"), (1, 0), (1.0, 0.0)):
        spelled = futr.assign(promo=futr["promo"].map({True: yes, False: no, None: None}).astype(object))
        assert_same_forecasts(forecast(running, futr=as_json(spelled, "unique_id", "ds", "promo")), expected)
        for content, body in (("text/csv", spelled.to_csv(index=False)), (ARROW, arrow(spelled))):
            headers = {"content-type": content, "accept": "text/csv"}
            answer = running.client.post("/v1/forecasts", content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert_same_forecasts(pd.read_csv(io.BytesIO(answer.content), parse_dates=["ds"]), expected)
    for odd in ("yes", 2):
        answer = running.client.post(
            "/v1/forecasts", json={"futr": as_json(futr.assign(promo=odd), "unique_id", "ds", "promo")}
        )
        assert "true or false" in error_of(answer, 422, "ColumnError")["message"]


def test_arrow_types(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    send = {"content-type": ARROW}
    frame = rows("a", [20])[["unique_id", "ds", "y"]]
    for odd in (
        frame.assign(unique_id=1),
        frame.assign(y="1"),
        frame.assign(y=[[1.0]]),
        frame.assign(ds=pd.NaT),
        frame.drop(columns="unique_id"),
    ):
        answer = running.client.post("/v1/observations", content=arrow(odd), headers=send)
        assert answer.json()["error"]["type"] == "ColumnError", answer.text
    table = pa.Table.from_pandas(frame.assign(unique_id=frame["unique_id"].astype("category")), preserve_index=False)
    for codec in ("lz4", "zstd"):
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table)
        answer = running.client.post("/v1/observations", content=sink.getvalue(), headers=send)
        assert "compressed" in error_of(answer, 400, "BodyError")["message"]
    nothing = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])  # many rows in few bytes
    many = pa.table(dict.fromkeys(("unique_id", "ds", "y"), nothing))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, many.schema) as writer:
        writer.write_table(many)
    error_of(running.client.post("/v1/observations", content=sink.getvalue(), headers=send), 413, "SizeError")
    good = frame.assign(ds=frame["ds"].dt.date, unique_id=frame["unique_id"].astype("category"), y=[3])
    assert running.client.post("/v1/observations", content=arrow(good), headers=send).json()["applied"] == 1
    # A series may be called NA.
    csv = f"unique_id,ds,y\nNA,{day(20)},1\n"
    answer = running.client.post("/v1/observations", content=csv, headers={"content-type": "text/csv"})
    assert answer.json()["new_series"] == ["NA"]


@pytest.mark.parametrize("cell", MISSING_TEXT)
def test_missing_values_of_csv(cell: str, serve: Serve, trained: Forecaster) -> None:
    """They are those of the command line's files."""
    running = serve(trained, monitor=False)
    body = f"unique_id,ds,y\na,2024-01-21,{cell}\n"
    answer = running.client.post("/v1/observations", content=body, headers={"content-type": "text/csv"})
    assert answer.json()["applied"] == 1, answer.text
    assert running.client.get("/v1/series/a").json()["y"] is None


def test_rows_far_ahead_need_an_argument(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, monitor=False)
    far = rows("a", [20])[["unique_id", "ds", "y"]].assign(ds=pd.Timestamp("2099-01-01"))
    error = error_of(running.post(far), 422, "JumpError")
    assert error["message"].endswith('or pass "allow_jump": true if time really went on that far. Nothing was applied.')
    assert error["rows"] == [{"unique_id": "a", "ds": "2099-01-01T00:00:00"}]
    error_of(running.post(far, allow_jump="yes"), 422, "SchemaError")
    assert running.post(far, allow_jump=True).json()["applied"] == 1
    body, send = far.assign(unique_id="b").to_csv(index=False), {"content-type": "text/csv"}
    later = body.replace("2099", "2199")
    error_of(running.client.post("/v1/observations", content=later, headers=send), 422, "JumpError")
    answer = running.client.post("/v1/observations?allow_jump=true", content=later, headers=send)
    assert answer.json()["applied"] == 1


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_with_a_zone(zone: str | None, serve: Serve) -> None:
    hours = pd.date_range("2024-10-24", periods=72, freq="h", tz=zone)
    df = pd.DataFrame({"unique_id": "a", "ds": hours, "y": 10.25 + hours.hour})
    forecaster = make(**{**BASE, "freq": "h"}).fit(df)
    night = pd.date_range(hours[-1].tz_convert("UTC") if zone else hours[-1].tz_localize("UTC"), periods=6, freq="h")[
        1:
    ]
    exact = [t.strftime("%Y-%m-%dT%H:%M:%SZ") for t in night]
    table = pd.DataFrame({"unique_id": "a", "ds": exact, "y": 1.0})
    bodies = {
        "application/json": json.dumps({"observations": table.to_dict("records")}).encode(),
        "text/csv": table.to_csv(index=False).encode(),
        ARROW: arrow(table.assign(ds=night.tz_convert("Europe/Berlin"))),
    }
    for content, body in bodies.items():
        running = serve(forecaster, monitor=False)
        post = running.client.post("/v1/observations", content=body, headers={"content-type": content})
        assert post.json()["applied"] == 5, post.text
        last = running.client.get("/v1/series/a").json()["ds"]
        ahead = running.client.post("/v1/forecasts", json={}).json()["forecasts"][0]["ds"]
        assert last == (night[-1].tz_convert(zone).isoformat() if zone else night[-1].strftime("%Y-%m-%dT%H:%M:%S"))
        nxt = night[-1] + pd.Timedelta(hours=1)
        assert ahead == (nxt.tz_convert(zone).isoformat() if zone else nxt.strftime("%Y-%m-%dT%H:%M:%S"))
        csv = running.client.post("/v1/forecasts", json={}, headers={"accept": "text/csv"}).text
        assert csv.splitlines()[1].split(",")[1] == ahead
        table = pa.ipc.open_stream(
            running.client.post("/v1/forecasts", json={}, headers={"accept": ARROW}).content
        ).read_all()
        assert table["ds"].type == pa.timestamp("us", zone)
