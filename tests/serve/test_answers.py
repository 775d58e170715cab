"""Refusals and failures: what an answer says about them, and what it does not."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster
from tests.making import make
from tests.shops import BASE, both, rows

from .conftest import Serve, as_json, day, error_of


def test_a_refusal_names_rows_columns_and_remedy(serve: Serve, rich: Forecaster) -> None:
    """In the words of requests: nobody here has a df, nor arguments."""
    running = serve(rich, monitor=False)
    good = as_json(both([20]), "unique_id", "ds", "y", "promo", "temp")

    def refused(kind: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = running.client.post("/v1/observations", json={"observations": list(rows), **more})
        error = error_of(answer, 422, kind)
        assert error["message"].endswith(error["remedy"])
        assert not re.search("`|_df|late=", error["message"])
        return error

    error = refused("DuplicateError", *good, {**good[1], "y": 3.0})
    assert {"unique_id": "b", "ds": day(20)}.items() <= error["rows"][0].items()
    error = refused("ColumnError", good[0], {**good[1], "ds": "soon"})
    assert (error["columns"], error["rows"]) == (["ds"], [{"unique_id": "b", "ds": "soon", "row": 1}])
    assert error["remedy"].startswith("Write ISO times")
    error = refused("FrequencyError", {**good[0], "ds": "2024-01-21 05:30:00"}, good[1])
    assert error["rows"][0]["unique_id"] == "a"
    assert error["rows"][0]["ds"] == "2024-01-21T05:30:00"
    error = refused("ColumnError", good[0], {**good[1], "temp": "warm"})
    assert (error["columns"], error["rows"]) == (["temp"], [{"row": 1, "value": "'warm'"}])
    error = refused("ColumnError", good[0], {k: v for k, v in good[1].items() if k != "temp"})
    assert (error["columns"], error["rows"]) == (["temp"], [{"unique_id": "b", "row": 1}])
    error = refused("ColumnError", *as_json(rows("n", [20]), "unique_id", "ds", "y", "promo", "temp"))
    assert (error["columns"], error["remedy"]) == (["kind"], "Pass static with unique_id and these columns.")
    error = refused("ColumnError", *({**good[0], "promo": i} for i in range(150)))
    assert (len(error["rows"]), error["total_rows"]) == (100, 150)
    assert "row 4 (4) and 145 more" in error["message"]
    csv = f"unique_id,ds,promo,temp\na,{day(20)},no,1\n"
    answer = running.client.post("/v1/observations", content=csv, headers={"content-type": "text/csv"})
    error = error_of(answer, 422, "ColumnError")
    assert (error["columns"], error["remedy"]) == (["y"], "Rename or add the columns.")
    futr = as_json(both([20, 21], "a"), "unique_id", "ds", "promo")
    error = error_of(running.client.post("/v1/forecasts", json={"futr": futr}), 422, "FutureError")
    assert error["rows"] == [{"unique_id": "a", "ds": day(22)}]
    futr = as_json(both([20, 21, 22], "x"), "unique_id", "ds", "promo")
    error = error_of(running.client.post("/v1/forecasts", json={"futr": futr}), 404, "UnknownSeriesError")
    assert error["remedy"] == "Give their observations to /v1/observations first."


def test_offending_rows_have_the_types_of_the_model(serve: Serve) -> None:
    frame = pd.DataFrame({"unique_id": np.repeat([3, 10], 12), "ds": [*range(0, 24, 2)] * 2, "y": np.arange(24.0)})
    running = serve(make(**{**BASE, "freq": 2}).fit(frame), monitor=False)
    body = {"observations": [{"unique_id": 3, "ds": 22, "y": None}, {"unique_id": 10, "ds": 24, "y": 1}]}
    error = error_of(running.client.post("/v1/observations", json=body), 409, "LateError")
    reason = "another value was consumed for this time"
    assert error["rows"] == [{"unique_id": 3, "ds": 22, "y": None, "reason": reason}]


def test_what_clients_name_stays_as_they_wrote_it(serve: Serve, rich: Forecaster) -> None:
    """Backticks mark names of the library in its messages, not in ids and values."""
    running, odd = serve(rich, monitor=False), "a`df`b"
    futr = as_json(both([20, 21, 22], "x"), "unique_id", "ds", "promo")
    body = {"futr": [{**row, "unique_id": odd} for row in futr]}
    error = error_of(running.client.post("/v1/forecasts", json=body), 404, "UnknownSeriesError")
    assert error["message"] == f"These series are not known: {odd}. Give their observations to /v1/observations first."
    assert (error["rows"], error["total_rows"]) == ([{"unique_id": odd}], 1)
    row = {**as_json(both([20], "a"), "unique_id", "ds", "y", "promo", "temp")[0], "temp": odd}
    error = error_of(running.client.post("/v1/observations", json={"observations": [row]}), 422, "ColumnError")
    assert f"row 0 ({odd!r})" in error["message"]
    assert error["rows"] == [{"row": 0, "value": repr(odd)}]
    row = {**row, "unique_id": odd, "temp": 1.0, "ds": odd}
    error = error_of(running.client.post("/v1/observations", json={"observations": [row]}), 422, "ColumnError")
    assert error["message"].startswith(f"ds of observations cannot be read as timestamps: ({odd}, {odd}) in row 0")
    assert error["rows"] == [{"unique_id": odd, "ds": odd, "row": 0}]


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


def test_no_value_is_ever_not_a_number(serve: Serve, trained: Forecaster) -> None:
    """JSON knows no NaN: numbers that are none are null."""
    running = serve(trained)
    for path in ("/v1/monitor/fleet", "/v1/monitor/series/a", "/v1/series/a"):
        json.loads(running.client.get(path).text, parse_constant=lambda name: math.nan / 0)
