"""The contract of every endpoint."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.serve import app as pages
from aru.serve.house import House
from aru.serve.options import Options
from tests.making import make
from tests.shops import BASE, STATIC, TRAINED, H, both, rows

from .conftest import NOTHING, Serve, as_json, assert_same_forecasts, day, error_of, forecast

OF_A_MODEL = (
    "observations",
    "forecasts",
    "series",
    "series/{unique_id}",
    "monitor/fleet",
    "monitor/series/{unique_id}",
)

# Observations


def test_observations_are_taken_in(serve: Serve, trained: Forecaster) -> None:
    running, stream = serve(trained), Stream(trained)
    stream.update(both([20, 21, 23], "abn"))
    answer = running.post(both([20, 21, 23], "abn").sample(frac=1, random_state=0))
    assert answer.status_code == 200
    assert answer.json() == NOTHING | {"applied": 9, "gaps_filled": 3, "new_series": ["n"]}
    assert_same_forecasts(forecast(running, level=[80]), stream.predict(level=[80]))
    assert running.post(both([23])).json() == NOTHING | {"duplicates": 2}


@pytest.mark.filterwarnings("ignore:y lies far outside")
def test_an_outlier_is_named(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    new = both([TRAINED]).assign(y=lambda df: df.y.where(df.unique_id != "a", 1e6))
    (held,) = running.post(new).json()["held_back"]
    assert (held["unique_id"], held["y"]) == ("a", 1e6)
    assert running.post(new).json() == NOTHING | {"duplicates": 2}


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
    assert error["total_rows"] == 2
    assert error["remedy"] == 'Nothing was applied. Drop them, or pass "late": "skip".'
    assert running.client.get("/v1/series/a").json()["observations"] == TRAINED
    assert running.post(wrong, late="skip").json() == NOTHING | {"applied": 1, "late": late}
    error = error_of(running.post(wrong, late="correct"), 422, "ConfigError")
    assert "correctable" in error["message"]


def test_corrections(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    Stream(trained, tmp_path / "state.db", correctable_steps=3).close()
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
    other = serve(make(**{**BASE, "freq": 2}).fit(frame))
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
    expected = stream.predict(futr, [90], ["n", "a"])
    sent = as_json(futr, "unique_id", "ds", "promo")
    assert_same_forecasts(forecast(running, unique_ids=["n", "a"], futr=sent, level=[90]), expected)
    assert_same_forecasts(forecast(running, futr=sent), stream.predict(futr, ids=["a", "n"]))
    error = error_of(running.client.post("/v1/forecasts", json={"unique_ids": ["a"]}), 422, "FutureError")
    assert "need unique_id, ds, promo of the next 3 steps of each series" in error["message"]
    assert error["remedy"] == "Give futr."
    for change in ({"promo": 1}, {"temp": "warm"}, {"temp": True}, {"promo": ["yes"]}):
        wrong = [{**observations[0], "ds": day(22), **change}]
        answer = running.client.post("/v1/observations", json={"observations": wrong})
        assert "row 0" in error_of(answer, 422, "ColumnError")["message"]
    del observations[0]["temp"]
    answer = running.client.post("/v1/observations", json={"observations": observations})
    assert "have no 'temp'" in error_of(answer, 422, "ColumnError")["message"]


# Forecasts and series


def test_forecasts(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, max_rows=7)
    assert_same_forecasts(forecast(running), Stream(trained).predict())
    assert_same_forecasts(forecast(running, unique_ids=["b", "b"]), Stream(trained).predict(ids=["b"]))
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
    assert 'aru_series{model="model"} 1.0' in running.client.get("/metrics").text
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
        'aru_rows_total{model="model",outcome="applied"} 6.0',
        'aru_rows_total{model="model",outcome="duplicates"} 1.0',
        'aru_series{model="model"} 3.0',
        'aru_scored_rows{model="model"} 0.0',
        'aru_batch_rows_count{model="model"} 3.0',
    ):
        assert line in answer.text


def test_ready_means_that_requests_are_worked_on(trained: Forecaster) -> None:
    house = House.of_stream(Stream(trained), Options(port=0))
    app = pages.create_app(house)

    async def run() -> list[tuple[int, str]]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

            async def ask() -> tuple[int, str]:
                answer = await client.get("/readyz")
                return answer.status_code, answer.json()["status"]

            said = [await ask()]
            async with app.router.lifespan_context(app):
                said.append(await ask())
                house.models["model"].updates.close()
                said.append(await ask())
                assert (await client.get("/healthz")).status_code == 200
            return said

    assert asyncio.run(run()) == [(503, "starting"), (200, "ok"), (503, "stopping")]


def test_pages_load_nothing_from_elsewhere(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    files = [f"/static/{file.relative_to(pages.STATIC_FOLDER).as_posix()}" for file in pages.STATIC_FOLDER.rglob("*.*")]
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
        *(f"{prefix}/{path}" for path in OF_A_MODEL for prefix in ("/v1", "/v1/models/{name}")),
        "/v1/models", "/v1/models/{name}", "/v1/models/{name}/promote", "/v1/models/{name}/rollback",
        "/v1/models/{name}/versions/{version}", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            named = [parameter["name"] for parameter in about.get("parameters", ()) if parameter["in"] == "path"]
            assert sorted(named) == sorted(re.findall(r"{(\w+)}", path)), (method, path)
    references = re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(references) <= set(document["components"]["schemas"])
    assert "examples" in document["components"]["schemas"]["ObservationsBody"]
