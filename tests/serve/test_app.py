"""The contract of every endpoint."""

from __future__ import annotations

import io
import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from aru import Forecaster, Stream
from aru.errors import ConfigError
from aru.serve import app as pages
from aru.serve.limits import Budget
from aru.serve.options import Options
from tests.shops import BASE, START, STATIC, TRAINED, H, both, rows

from .conftest import Running, Serve, as_json

ARROW = "application/vnd.apache.arrow.stream"
NOTHING = {"applied": 0, "duplicates": 0, "corrected": 0, "gaps_filled": 0, "new_series": [], "late": []}


def day(number: int) -> str:
    return (START + pd.Timedelta(days=number)).isoformat()


def arrow(frame: pd.DataFrame) -> bytes:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def error_of(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == kind
    return error


def forecast(running: Running, **body: Any) -> pd.DataFrame:
    answer = running.client.post("/v1/forecasts", json=body)
    assert answer.status_code == 200, answer.text
    frame = pd.DataFrame(answer.json()["forecasts"])
    return frame.assign(ds=pd.to_datetime(frame["ds"]))


def assert_same_forecasts(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-6)


# Observations


def test_observations_are_taken_in(serve: Serve, trained: Forecaster) -> None:
    running, stream = serve(trained), Stream(trained)
    stream.update(both([20, 21, 23], "abn"))
    answer = running.post(both([20, 21, 23], "abn").sample(frac=1, random_state=0))
    assert answer.status_code == 200
    assert answer.json() == NOTHING | {"applied": 9, "gaps_filled": 3, "new_series": ["n"]}
    assert_same_forecasts(forecast(running, level=[80]), stream.predict(level=[80]))
    assert running.post(both([23])).json() == NOTHING | {"duplicates": 2}


def test_late_rows(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    wrong = pd.concat([rows("a", [2]), rows("b", [19]).assign(y=-1.0), rows("a", [20])])
    error = error_of(running.post(wrong), 409, "LateError")
    assert re.search(r'observations has 2 rows .*"late": "skip"', error["message"])
    late = [
        {"unique_id": "a", "ds": day(2), "y": rows("a", [2])["y"][0], "reason": "arrived too late"},
        {"unique_id": "b", "ds": day(19), "y": -1.0, "reason": "another value was consumed for this time"},
    ]
    assert error["rows"] == late
    assert running.client.get("/v1/series/a").json()["observations"] == TRAINED
    assert running.post(wrong, late="skip").json() == NOTHING | {"applied": 1, "late": late}
    error = error_of(running.post(wrong, late="correct"), 422, "ConfigError")
    assert "correctable" in error["message"]


def test_corrections(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    Stream(trained, tmp_path / "state.db", correctable=3).close()
    running = serve(trained, tmp_path / "state.db")
    running.post(both([20, 21]))
    revised = rows("a", [21]).assign(y=7.5)
    assert running.post(revised, late="correct").json() == NOTHING | {"corrected": 1}
    assert running.client.get("/v1/series/a").json()["y"] == 7.5


def test_missing_values_and_integer_times(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    assert running.post(rows("a", [20]).assign(y=np.nan)).json()["applied"] == 1
    report = running.client.get("/v1/series/a").json()
    assert (report["y"], report["observations"], report["ds"]) == (None, TRAINED, day(20))
    frame = pd.DataFrame({"unique_id": np.repeat([3, 10], 12), "ds": [*range(0, 24, 2)] * 2, "y": np.arange(24.0)})
    other = serve(Forecaster(**{**BASE, "freq": 2}).fit(frame))
    body = {"observations": [{"unique_id": 10, "ds": 24, "y": 5}]}
    assert other.client.post("/v1/observations", json=body).json() == NOTHING | {"applied": 1}
    assert [row["ds"] for row in forecast(other, unique_ids=[3]).astype({"ds": int}).to_dict("records")] == [24, 26, 28]
    assert other.client.get("/v1/series/10").json()["ds"] == 24
    csv = "unique_id,ds,y\n10,26,1\n"
    answer = other.client.post("/v1/observations", content=csv, headers={"content-type": "text/csv"})
    assert answer.json() == NOTHING | {"applied": 1}
    for odd in ("ten", "1_0", "9" * 30, 1.5):
        body = {"observations": [{"unique_id": odd, "ds": 28, "y": 5}]}
        assert other.client.post("/v1/observations", json=body).status_code == 422
    error_of(other.client.get("/v1/series/x"), 404, "UnknownSeriesError")


def test_covariates(serve: Serve, rich: Forecaster) -> None:
    running, stream = serve(rich), Stream(rich)
    new = both([20, 21], "an")
    stream.update(new, STATIC)
    observations = as_json(new, "unique_id", "ds", "y", "promo", "temp")
    lacking = running.client.post("/v1/observations", json={"observations": observations})
    assert "static" in error_of(lacking, 422, "ColumnError")["message"]
    body = {"observations": observations, "static": as_json(STATIC, "unique_id", "kind")}
    assert running.client.post("/v1/observations", json=body).json()["new_series"] == ["n"]
    futr = both([22, 23, 24], "an")[["unique_id", "ds", "promo"]]
    expected = stream.predict(["n", "a"], futr, [90])
    sent = as_json(futr, "unique_id", "ds", "promo")
    assert_same_forecasts(forecast(running, unique_ids=["n", "a"], futr=sent, level=[90]), expected)
    assert_same_forecasts(forecast(running, futr=sent), stream.predict(["a", "n"], futr))
    error = error_of(running.client.post("/v1/forecasts", json={"unique_ids": ["a"]}), 422, "FutureError")
    assert "futr with unique_id, ds, promo" in error["message"]
    for change in ({"promo": 1}, {"temp": "warm"}, {"temp": True}, {"promo": ["yes"]}):
        wrong = [{**observations[0], "ds": day(22), **change}]
        answer = running.client.post("/v1/observations", json={"observations": wrong})
        assert "row 0" in error_of(answer, 422, "ColumnError")["message"]
    del observations[0]["temp"]
    answer = running.client.post("/v1/observations", json={"observations": observations})
    assert "have no 'temp'" in error_of(answer, 422, "ColumnError")["message"]


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
        ({"ds": "2024-01-21T00:00:00Z"}, 422, "ColumnError", "cannot be read as timestamps"),
        ({"ds": "2024-01-21T05:00:00"}, 422, "FrequencyError", "do not lie on the grid"),
        ({"y": 1e999}, 422, "ValueRangeError", "infinite"),
    ],
)
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
    running = serve(Forecaster(**{**BASE, "freq": 2}).fit(frame), monitor=False)
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
    wanted = stream.predict(["o", "a"], futr, [80, 95])
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

    model = Forecaster(**BASE, futr_exog_list=["promo"]).fit(flagged(range(TRAINED)))
    running = serve(model, monitor=False)
    futr = flagged(range(TRAINED, TRAINED + H))[["unique_id", "ds", "promo"]]
    assert futr["promo"].nunique() == 2
    futr["promo"] = futr["promo"].astype(object)
    futr.loc[4, "promo"] = None
    expected = Stream(model).predict(["a", "b"], futr)
    assert expected["aru"].tolist() != Stream(model).predict(["a", "b"], futr.assign(promo=None))["aru"].tolist()
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
        frame.assign(ds=frame["ds"].dt.tz_localize("UTC")),
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


# Forecasts and series


def test_forecasts(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, max_rows=7)
    assert_same_forecasts(forecast(running), Stream(trained).predict())
    assert_same_forecasts(forecast(running, unique_ids=["b", "b"]), Stream(trained).predict(["b"]))
    error = error_of(running.client.post("/v1/forecasts", json={"unique_ids": ["a", "x"]}), 404, "UnknownSeriesError")
    assert error["message"].startswith("These series are not known: x.")
    for wrong in ({"level": [100]}, {"level": ["80"]}, {"level": [50] * 21}, {"unique_ids": "a"}, {"ids": ["a"]}):
        error_of(running.client.post("/v1/forecasts", json=wrong), 422, "SchemaError")
    error_of(running.client.post("/v1/forecasts", json={"unique_ids": []}), 422, "InputError")
    error_of(running.client.post("/v1/forecasts", json={"unique_ids": ["a", "b", "x"]}), 413, "SizeError")
    answer = running.client.post(
        "/v1/forecasts?unique_id=a&level=101", content="", headers={"content-type": "text/csv"}
    )
    error_of(answer, 422, "SchemaError")
    answer = running.client.post("/v1/forecasts?unique_id=a", content="", headers={"content-type": "text/csv"})
    assert len(answer.json()["forecasts"]) == H


def test_series_are_listed_page_by_page(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    names = [f"Shop/{i:02}" for i in range(25)]
    running.post(pd.concat([rows(name, [20]) for name in names]))
    seen, cursor = [], None
    while True:
        page = running.client.get(
            "/v1/series", params={"limit": 10, "query": "shop", **({"cursor": cursor} if cursor else {})}
        )
        assert len(page.json()["series"]) <= 10
        seen += page.json()["series"]
        if (cursor := page.json()["next_cursor"]) is None:
            break
    assert seen == [{"unique_id": name, "ds": day(20), "observations": 1, "accuracy": None} for name in names]
    for wrong in ("limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=MQ=="):
        assert running.client.get(f"/v1/series?{wrong}").status_code == 422
    assert running.client.get("/v1/series/Shop/03").json()["unique_id"] == "Shop/03"


def test_a_series_is_described_and_forgotten(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    running.post(rows("a", range(20, 30)))
    report = running.client.get("/v1/series/a").json()
    assert (report["observations"], report["ds"], report["y"]) == (30, day(29), rows("a", [29])["y"][0])
    assert len(report["effective_sample_size"]) == 3
    assert 29 >= report["effective_sample_size"][0] > report["effective_sample_size"][2] > 0
    assert running.client.delete("/v1/series/a").json() == {"forgotten": "a"}
    for method in ("GET", "DELETE"):
        error_of(running.client.request(method, "/v1/series/a"), 404, "UnknownSeriesError")
    assert "aru_series 1.0" in running.client.get("/metrics").text
    assert running.post(rows("a", [5])).json()["new_series"] == ["a"]


# Operations


def test_health_and_metrics(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    assert running.client.get("/healthz").json() == running.client.get("/readyz").json() == {"status": "ok"}
    running.post(both([20, 21], "abn"))
    running.post(both([21], "a"))
    running.post(rows("a", [1]))
    running.client.get("/nowhere")
    answer = running.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'aru_http_requests_total{method="POST",route="/v1/observations",status="200"} 2.0',
        'aru_http_requests_total{method="POST",route="/v1/observations",status="409"} 1.0',
        'aru_http_requests_total{method="other",route="other",status="404"} 1.0',
        'aru_http_request_seconds_count{method="POST",route="/v1/observations"} 3.0',
        'aru_rows_total{outcome="applied"} 6.0',
        'aru_rows_total{outcome="duplicates"} 1.0',
        "aru_series 3.0",
        'aru_rolling_nd{forecast="adapted"} ',
        'aru_rolling_nd{forecast="global"} ',
        "aru_batch_rows_count 3.0",
    ):
        assert line in answer.text


def test_pages_load_nothing_from_elsewhere(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    files = [f"/static/{file.relative_to(pages.STATIC).as_posix()}" for file in pages.STATIC.rglob("*.*")]
    assert len(files) > 10
    for path in ("/", "/docs", *files):
        answer = running.client.get(path)
        assert answer.status_code == 200
        text = re.sub(r"(^|; |, |\{ )// .*$", "", answer.text, flags=re.MULTILINE).replace(
            'xmlns="http://www.w3.org', ""
        )
        assert "//" not in re.sub(r"^ *// .*$", "", text, flags=re.MULTILINE), path
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|<style| on\w+=|style=", text
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'; script-src 'self';" in answer.headers["content-security-policy"]
    assert running.client.get("/static/../app.py").status_code == 404


def test_openapi_describes_every_endpoint(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    document = running.client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/observations", "/v1/forecasts", "/v1/series", "/v1/series/{unique_id}", "/v1/monitor/fleet",
        "/v1/monitor/series/{unique_id}", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    references = re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(references) <= set(document["components"]["schemas"])
    assert "examples" in document["components"]["schemas"]["Observations"]


def test_internals_are_never_shown(
    serve: Serve, trained: Forecaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve(trained)

    def broken(*_: Any) -> None:
        raise RuntimeError("secret of the house")

    with monkeypatch.context() as patch:
        patch.setattr(running.stream, "apply", broken)
        patch.setattr(running.stream, "predict_columns", broken)
        answers = [
            running.post(both([20])),
            running.client.post("/v1/forecasts", json={}),
        ]
    for answer in answers:
        error = error_of(answer, 500, "InternalError")
        assert "secret" not in answer.text
        assert error["id"] in caplog.text
    assert "secret of the house" in caplog.text
    assert running.post(both([20])).status_code == 200  # and it goes on


def test_a_store_that_fails_is_no_fault_of_the_client(
    serve: Serve, trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(trained, tmp_path / "state.db")

    def full(*_: Any) -> None:
        raise __import__("sqlite3").OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("aru.store.sqlite._SQLiteTransaction.put", full)
        answer = running.post(both([20]))
        assert "disk" not in json.dumps(error_of(answer, 503, "StorageError"))
        assert answer.headers["retry-after"] == "1"
    assert running.post(both([20])).json()["applied"] == 2


# Limits and tokens


def test_large_requests_are_refused(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, max_rows=10, max_bytes=2000)
    error_of(running.post(both(range(20, 26))), 413, "SizeError")
    csv = both(range(20, 26))[["unique_id", "ds", "y"]].to_csv(index=False)
    error_of(
        running.client.post("/v1/observations", content=csv, headers={"content-type": "text/csv"}), 413, "SizeError"
    )

    def chunks() -> Any:
        for _ in range(100):
            yield b" " * 100

    for content in (b" " * 2001, chunks()):
        answer = running.client.post("/v1/observations", content=content, headers={"content-type": "application/json"})
        error_of(answer, 413, "SizeError")
    assert running.post(both([20])).status_code == 200


def test_a_token_is_needed(serve: Serve, trained: Forecaster) -> None:
    token = "a-long-and-secret-token"
    running = serve(trained, token=token)
    for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}, {"authorization": "Bearer \xe9"}):
        for method, path in (
            ("GET", "/v1/series"),
            ("GET", "/metrics"),
            ("DELETE", "/v1/series/a"),
            ("POST", "/v1/forecasts"),
        ):
            answer = running.client.request(method, path, headers={k: v.encode("latin-1") for k, v in header.items()})
            error_of(answer, 401, "TokenError")
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/static/docs.js"):
        assert running.client.get(path).status_code == 200
    assert running.client.get("/v1/series", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_other_hosts_need_a_token(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:80"):
        assert running.client.get("/v1/series", headers={"host": host}).status_code == 400
    for host in ("localhost", "localhost:99", "127.0.0.1:8000", "[::1]:8000"):
        assert running.client.get("/v1/series", headers={"host": host}).status_code == 200
    for host in ("0.0.0.0", "192.168.1.5", "example.com", "::"):
        with pytest.raises(ConfigError, match="can be reached by other machines: give a token"):
            Options(host=host)
        Options(host=host, token="a-long-and-secret-token")
    for wrong in ({"token": "short"}, {"max_rows": 0}, {"max_bytes": -1}, {"port": 70000}):
        with pytest.raises(ConfigError):
            Options(**wrong)


def test_no_value_is_ever_not_a_number(serve: Serve, trained: Forecaster) -> None:
    """JSON knows no NaN: numbers that are none are null."""
    running = serve(trained)
    for path in ("/v1/monitor/fleet", "/v1/monitor/series/a", "/v1/series/a"):
        json.loads(running.client.get(path).text, parse_constant=lambda name: math.nan / 0)


def test_logs_are_bounded() -> None:
    budget, minute = Budget(lines=3), [0.0]
    record = logging.LogRecord("aru", logging.ERROR, "", 0, "trouble", None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: minute[0])
        assert [budget.filter(record) for _ in range(5)] == [True] * 3 + [False] * 2
        minute[0] = 61.0
        assert budget.filter(record)
    assert record.getMessage() == "trouble (2 earlier lines were left out)"
