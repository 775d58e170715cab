"""Models and their versions in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from aru import Forecaster
from aru.serve.app import create_app
from aru.serve.bundles import pack
from aru.serve.house import House
from aru.serve.options import Options
from aru.serve.server import configure, listen
from tests.making import make
from tests.shops import BASE, TRAINED, H, both, rows

from .conftest import Running, Serve
from .test_dashboard import Open, chromium, feed, figure, get, pytestmark, scrolls_sideways, visit

__all__ = ["chromium", "pytestmark", "visit"]  # what the tests of this file share with those of the dashboard


@pytest.fixture
def contested(serve: Serve, trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service with a challenger that was scored."""
    monkeypatch.setattr("aru.serve.upkeep.LOOK", 0.02)
    monkeypatch.setattr("aru.serve.upkeep.REPORT", 0.0)
    running = serve(trained, tmp_path / "state.db", keep=86400.0)
    feed(running, "abno", range(20, 20 + 4 * H))
    other = make(**{**BASE, "random_seed": 6}).fit(both(range(TRAINED)))
    tar = {"content-type": "application/x-tar"}
    running.client.put("/v1/models/model", content=pack(other), headers=tar).raise_for_status()
    for day in range(20 + 4 * H, 20 + 12 * H):
        wait(running)
        feed(running, "abno", [day])
    wait(running)
    return running


def wait(running: Running) -> None:
    end = time.monotonic() + 60
    while any(v["status"] == "building" or v["behind"] != 0 for v in get(running, "/v1/models/model")["versions"][1:]):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, {"width": 375, "height": 740}])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_champion_and_challenger_are_shown_and_promoted(
    contested: Running, visit: Open, size: Any, scheme: str
) -> None:
    page = visit(contested, viewport=size, color_scheme=scheme)
    page.get_by_role("heading", name="Champion and challenger").wait_for()
    page.wait_for_selector(".chart .line.rival")
    said = get(contested, "/v1/models/model")
    contest = said["contest"]
    table = page.get_by_role("table", name="Versions")
    cells = [row.inner_text().split("\t") for row in table.locator("tbody tr").all()]
    assert [cell[0] for cell in cells] == ["Champion 1", "Challenger 2"]
    for cell, side in zip(cells, ("champion", "shadow"), strict=True):
        assert f"{100 * contest[side]['nd']:.2f} %" in cell
    assert len(page.locator(".chart .line.rival").get_attribute("d").split("L")) == len(contest["timeline"])
    assert page.get_by_text("aru rollout promote --name model --version 2").count() == 1
    assert not scrolls_sideways(page)
    contested.client.post("/v1/models/model/promote", json={"version": 2}).raise_for_status()
    page.reload()
    page.get_by_text("Champion 2", exact=True).wait_for()
    assert page.get_by_text("aru rollout rollback --name model --version 1").count() == 1


def test_a_service_without_versions_shows_none(serve: Serve, trained: Forecaster, visit: Open) -> None:
    running = serve(trained)
    page = visit(running)
    page.wait_for_selector("main[aria-busy=false]")
    assert page.get_by_role("heading", name="Champion and challenger").count() == 0
    assert page.get_by_label("Model").count() == 0 or page.get_by_label("Model").first.is_hidden()


@pytest.mark.filterwarnings("ignore:y lies far outside")
def test_drift_is_explained_on_the_page_of_a_series(serve: Serve, trained: Forecaster, visit: Open) -> None:
    running = serve(trained)
    for day in range(20, 20 + 16 * H + 1):
        frame = both([day])
        frame.loc[frame["unique_id"] == "a", "y"] *= 9 + day % 5 if day > 20 + 12 * H else 1
        running.post_and_watch(frame)
    found = get(running, "/v1/monitor/series/a")["drift"]
    assert found["drift"] > found["limit"]
    page = visit(running, "#/series/a")
    page.get_by_text("This series drifts.").wait_for()
    assert figure(page, "Drift") == f"{found['drift']:.1f} \N{GREEK SMALL LETTER SIGMA}"
    text = page.locator(".notice").first.inner_text()
    assert f"{100 * found['error_latest']:.1f} %" in text
    assert f"over the {found['rows_before']} before" in text
    page = visit(running, "#/series/b")
    page.wait_for_selector("main[aria-busy=false]")
    assert page.get_by_text("This series drifts.").count() == 0


@pytest.fixture
def two(trained: Forecaster, tmp_path: Path) -> Iterator[Any]:
    """A service of two models."""
    nano = Forecaster.from_pretrained("nano", h=H, freq="D")
    options = Options(port=0)
    house = House.open({"shops": lambda: trained, "nano": lambda: nano}, tmp_path / "states", options, "shops")
    listener = listen(options)
    server = uvicorn.Server(configure(create_app(house), options))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        thread.join(0.01)

    class Place:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    frame = rows("x/y", range(30))[["unique_id", "ds", "y"]]
    body = frame.to_csv(index=False)
    answer = httpx.post(f"{Place.url}/v1/models/nano/observations", content=body, headers={"content-type": "text/csv"})
    assert answer.status_code == 200, answer.text
    yield Place
    server.should_exit = True
    thread.join()
    listener.close()


def test_one_model_after_the_other(two: Any, visit: Open) -> None:
    page = visit(two)
    page.wait_for_selector("main[aria-busy=false]")
    choice = page.get_by_label("Model", exact=True)
    assert choice.input_value() == "shops"
    assert figure(page, "Series") == "2"
    choice.select_option("nano")
    page.get_by_role("link", name="x/y", exact=True).wait_for()
    assert figure(page, "Series") == "1"
    assert page.url.endswith("#/models/nano/")
    page.get_by_role("link", name="x/y", exact=True).click()
    page.get_by_role("heading", name="x/y").wait_for()
    assert page.url.endswith("#/models/nano/series/x%2Fy")
    page.reload()
    page.get_by_role("heading", name="x/y").wait_for()
    assert choice.input_value() == "nano"
    page.get_by_role("link", name="← All series").click()
    page.get_by_role("link", name="x/y", exact=True).wait_for()
    page.get_by_role("link", name="aru, all series").click()
    page.wait_for_selector("main[aria-busy=false]")
    assert page.url.endswith("#/models/nano/")  # the brand leads to all series of this model
    assert not scrolls_sideways(page)
