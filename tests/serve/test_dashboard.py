"""The dashboard in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster
from tests.making import make
from tests.shops import BASE, H, both, rows

from .browser import CHROMIUM, LAUNCH
from .conftest import Running, Serve, as_json

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install the package chromium, or set CHROMIUM"),
]
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>/../%2e'\"&amp;"
PHONE = {"width": 375, "height": 740}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with api.sync_playwright() as driver, driver.chromium.launch(**LAUNCH) as browser:
        yield browser


@pytest.fixture
def visit(chromium: Any) -> Iterator[Open]:
    """Opens a page; in the end, no page may have complained or asked anybody else."""
    problems: list[str] = []
    contexts = []

    def start(running: Running, path: str = "", expected: tuple[str, ...] = (), **options: Any) -> Any:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()

        def said(message: Any) -> None:
            if message.type in ("error", "warning") and not any(word in message.text for word in expected):
                problems.append(f"{message.type}: {message.text}")

        def asked(request: Any) -> None:
            if urlsplit(request.url).netloc != urlsplit(running.url).netloc:
                problems.append(f"request to {request.url}")

        page.on("console", said)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", asked)
        page.goto(f"{running.url}/{path}")
        return page

    yield start
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def fleet(serve: Serve, trained: Forecaster, tmp_path: Path) -> Running:
    """A service with some weeks behind it."""
    running = serve(trained, tmp_path / "state.db")
    feed(running, "abno", range(20, 20 + 20 * H + 2))
    return running


def feed(running: Running, names: Any, days: Any) -> None:
    for day in days:
        running.post_and_watch(pd.concat([rows(name, [day]) for name in names]))


def link(name: str) -> str:
    return f"#/series/{quote(name, safe='')}"


def figure(page: Any, name: str) -> str:
    text: str = page.locator(f'[data-figure="{name}"]').inner_text()
    return text.replace("\N{MINUS SIGN}", "-")


def get(running: Running, path: str) -> Any:
    return running.client.get(path).json()


def scrolls_sideways(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def test_the_overview_says_what_the_api_says(fleet: Running, visit: Open) -> None:
    page = visit(fleet)
    page.wait_for_selector(".chart .line.adapted")
    said = get(fleet, "/v1/monitor/fleet")
    accuracy = said["accuracy"]
    assert figure(page, "Series") == "4"
    assert figure(page, "Error, adapted") == f"{100 * accuracy['nd']:.1f} %"
    assert page.get_by_text(f"global forecast {100 * accuracy['nd_global']:.1f} %").count() == 1
    assert figure(page, "By adapting") == f"{100 * (accuracy['nd'] / accuracy['nd_global'] - 1):+.1f} %"
    shown = figure(page, "In 80 % interval").removesuffix(" %")
    assert float(shown) == pytest.approx(100 * accuracy["coverage_80"], abs=0.0501)  # halves are rounded either way
    assert figure(page, "Better, worse") == f"{said['series_improved']} / {said['series_worsened']}"
    drift, listed = (page.locator("table").nth(i).locator("tbody th").all_inner_texts() for i in range(2))
    assert drift == [row["unique_id"] for row in said["drifting"]]
    assert listed == ["a", "b", "n", "o"]
    points = page.locator(".chart .line.adapted").get_attribute("d").count("L") + 1
    assert points == len(said["timeline"])
    assert page.title() == "aru"


def test_it_stays_up_to_date_and_can_be_paused(fleet: Running, visit: Open) -> None:
    page = visit(fleet)
    page.get_by_role("link", name="a", exact=True).last.focus()
    feed(fleet, ["new"], [100])
    page.get_by_role("link", name="new", exact=True).wait_for(timeout=10_000)
    assert page.evaluate("document.activeElement.textContent") == "a"
    page.get_by_role("button", name="Live").click()
    assert page.get_by_role("button", name="Paused").get_attribute("aria-pressed") == "false"


def test_search_by_keyboard(fleet: Running, visit: Open) -> None:
    feed(fleet, ["Shop-1", "Shop-2", "Shop-3"], [100])
    page = visit(fleet)
    page.wait_for_selector("main[aria-busy=false]")
    page.keyboard.press("/")
    page.keyboard.type("shop")
    page.locator("#found mark").nth(2).wait_for()
    assert page.locator("#found mark").all_inner_texts() == ["Shop"] * 3
    page.keyboard.press("ArrowDown")
    assert page.locator("#search").get_attribute("aria-activedescendant") == "option-1"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Shop-2", exact=True).wait_for()
    assert page.url.endswith("#/series/Shop-2")
    page.keyboard.press("Control+k")
    page.keyboard.type("nothing like it")
    page.get_by_text("No series contains “nothing like it”.").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    page.keyboard.press("/")
    page.keyboard.type("shop-3")
    page.keyboard.press("Enter")  # before the answer
    page.get_by_role("heading", name="Shop-3", exact=True).wait_for()
    page.go_back()
    page.get_by_role("heading", name="Shop-2", exact=True).wait_for()


def test_a_series_with_history_fan_and_local_part(fleet: Running, visit: Open) -> None:
    page = visit(fleet, link("a"))
    page.wait_for_selector(".chart .dots")
    said = get(fleet, "/v1/monitor/series/a")
    history, forecast = said["history"], said["forecast"]
    assert len(history) > 42
    assert figure(page, "Latest value") == f"{said['y']:.1f}"
    assert figure(page, "Error, adapted") == f"{100 * said['accuracy']['nd']:.1f} %"
    chart, local = page.locator("svg.chart").nth(0), page.locator("svg.chart").nth(1)
    assert chart.locator(".dots circle").count() == 42
    assert [chart.locator(f".band.fan{level}").count() for level in (50, 80, 95)] == [1, 1, 1]
    assert chart.locator(".line.global").count() == chart.locator(".line.adapted").count() == 1
    assert local.locator(".bars.adapted rect").count() == H
    page.get_by_role("button", name=f"All {len(history)}").click()
    assert chart.locator(".dots circle").count() == len(history)
    assert local.locator(".bars.past rect").count() == sum(row["local"] is not None for row in history)
    page.get_by_role("button", name="Observed").click()
    assert chart.locator(".dots").count() == 0
    page.get_by_role("button", name="Observed").click()
    table = page.locator("table tbody tr").all_inner_texts()
    assert [float(row.split("\t")[1]) for row in table] == pytest.approx([r["median"] for r in forecast], abs=0.051)
    sizes = page.locator(".meters dd b").all_inner_texts()
    assert [float(text.replace(",", "")) for text in sizes] == pytest.approx(said["effective_sample_size"], rel=0.01)
    chart.focus()
    page.keyboard.press("Home")
    assert f"{history[0]['y']:.1f}" in page.locator(".tip").first.inner_text()
    assert "Observed" in page.locator("[aria-live]").first.inner_text()
    page.keyboard.press("End")
    assert f"{forecast[-1]['lo_95']:.1f} to {forecast[-1]['hi_95']:.1f}" in page.locator(".tip").first.inner_text()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + 40)
    assert page.locator(".tip").first.is_visible()


def test_light_and_dark(fleet: Running, visit: Open) -> None:
    def background(page: Any) -> int:
        return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))

    light, dark = visit(fleet, color_scheme="light"), visit(fleet, color_scheme="dark")
    assert background(light) > 600
    assert background(dark) < 150
    light.locator("#theme").click()
    assert background(light) < 150
    light.reload()
    light.wait_for_selector(".chart .line.adapted")
    assert background(light) < 150
    light.locator("#theme").click()
    assert background(light) > 600


def test_text_is_readable_on_its_background(fleet: Running, visit: Open) -> None:
    """Contrast of at least 4.5 to 1 for small text, in both themes and on both views."""
    for scheme in ("light", "dark"):
        for path in ("", link("a")):
            page = visit(fleet, path, color_scheme=scheme)
            page.wait_for_selector(".chart .line.adapted")
            assert page.evaluate(CONTRAST) == [], (scheme, path)


def test_a_phone_does_not_scroll_sideways(fleet: Running, visit: Open) -> None:
    long = "a/very/long/name/" + "without-any-space" * 12
    feed(fleet, [long], range(100, 100 + 2 * H))
    for path in ("", link("a"), link(long)):
        page = visit(fleet, path, viewport=PHONE, has_touch=True)
        page.wait_for_selector(".chart .line.adapted")
        assert not scrolls_sideways(page)
        page.locator("svg.chart").first.tap()
        assert page.locator(".tip").first.is_visible()
        page.locator("#search").tap()
        page.get_by_role("option").first.wait_for()
        assert not scrolls_sideways(page)


def test_a_hostile_name_is_only_a_name(fleet: Running, visit: Open) -> None:
    feed(fleet, [HOSTILE], range(100, 100 + 3 * H))
    page = visit(fleet)
    shown = page.get_by_role("link", name=HOSTILE, exact=True).first
    shown.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    page.locator("#found mark").wait_for()
    assert page.get_by_role("option").first.locator("span").inner_text() == HOSTILE
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=HOSTILE, exact=True).wait_for()
    page.wait_for_selector(".chart .line.adapted")
    assert page.locator("main img, main script, header img").count() == 0
    assert page.title() == f"{HOSTILE} · aru"


def test_the_token_is_asked_for_and_kept_in_the_tab(serve: Serve, trained: Forecaster, visit: Open) -> None:
    running = serve(trained, tokens={"0123456789abcdef": "read"})
    page = visit(running, expected=("401",))
    page.get_by_role("textbox", name="Token").fill("not the token, alas")
    page.keyboard.press("Enter")
    page.get_by_text("The service did not accept this token.").wait_for()
    page.get_by_role("textbox", name="Token").fill("0123456789abcdef")
    page.get_by_role("button", name="Open the dashboard").click()
    page.locator("[data-figure=Series]").wait_for()
    page.reload()
    page.locator("[data-figure=Series]").wait_for()
    assert page.locator("dialog").is_hidden()
    assert "0123456789abcdef" not in page.content()
    page.set_viewport_size(PHONE)
    assert not scrolls_sideways(page)
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.get_by_role("button", name="Forget token").click()
    page.get_by_role("dialog").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_it_comes_back_when_the_service_does(serve: Serve, trained: Forecaster, tmp_path: Path, visit: Open) -> None:
    first = serve(trained, tmp_path / "state.db")
    feed(first, "ab", range(20, 20 + 2 * H + 1))
    page = visit(first, link("a"), expected=("ERR_CONNECTION_REFUSED",))
    page.wait_for_selector(".chart .dots")
    before = figure(page, "Error, adapted")
    first.stop()
    page.get_by_text("The service cannot be reached.").wait_for(timeout=15_000)
    assert figure(page, "Error, adapted") == before  # what was known stays
    again = serve(trained, tmp_path / "state.db", port=urlsplit(first.url).port)
    feed(again, "a", [20 + 2 * H + 1])
    page.get_by_role("button", name="Live").wait_for(timeout=30_000)
    assert page.locator("#problem").is_hidden()
    assert figure(page, "Error, adapted") == before
    assert figure(page, "Latest value") == f"{rows('a', [20 + 2 * H + 1])['y'][0]:.1f}"


def test_when_there_is_nothing_to_show(serve: Serve, trained: Forecaster, visit: Open) -> None:
    running = serve(trained)
    page = visit(running)
    page.get_by_text("Nothing to compare yet").wait_for()
    page = visit(running, link("who"), expected=("404",))
    page.get_by_text("This series is not known").wait_for()
    for name in "ab":
        running.client.delete(f"/v1/series/{name}").raise_for_status()
    page = visit(running)
    page.get_by_text("No series yet").wait_for()
    feed(running, ["first"], [100])
    page.get_by_role("link", name="first").wait_for(timeout=10_000)
    blind = visit(serve(trained, monitor=False))
    blind.get_by_text("Monitoring is off").wait_for()


def test_covariates_of_the_future(serve: Serve, rich: Forecaster, visit: Open) -> None:
    running = serve(rich)
    page = visit(running, link("a"))
    notice = page.locator(".notice")
    notice.wait_for()
    assert "unique_id, ds, promo" in notice.inner_text()
    assert page.locator(".chart .dots circle").count() == 5
    futr = as_json(both(range(20, 20 + H)), "unique_id", "ds", "promo")
    running.client.post("/v1/forecasts", json={"futr": futr}).raise_for_status()
    page.wait_for_selector(".band.fan95", timeout=10_000)
    assert notice.count() == 0


def test_integers_for_names_and_times(serve: Serve, visit: Open) -> None:
    large = 2**53 + 1
    past = pd.concat(
        [pd.DataFrame({"unique_id": i, "ds": np.arange(40), "y": i % 9 + np.arange(40) % 7.5}) for i in (1, large)]
    )
    running = serve(make(**{**BASE, "freq": 1}).fit(past[past["ds"] < 20]))
    for step in range(20, 40):
        body = past[past["ds"] == step].to_csv(index=False)
        running.client.post("/v1/observations", content=body, headers={"Content-Type": "text/csv"}).raise_for_status()
    page = visit(running)
    page.get_by_role("link", name=str(large)).last.click()
    page.get_by_role("heading", name=str(large)).wait_for()
    page.wait_for_selector(".chart .line.adapted")
    assert "Latest row 39" in page.locator(".about").first.inner_text()
    ticks = page.locator("svg.chart").first.locator("text.when").all_text_contents()
    assert len(ticks) > 3
    assert all(text.isdecimal() for text in ticks)


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => { for (let at = node; at; at = at.parentElement) {
    const found = rgb(getComputedStyle(at).backgroundColor); if (found[3] === 255) return found; }
    return [255, 255, 255]; };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim(), style = getComputedStyle(node);
    if (!text || !node.checkVisibility() || node.closest(".unseen, .skip, script, noscript")) continue;
    const own = light(rgb(node.closest("svg") ? style.fill : style.color)), other = light(behind(node));
    const ratio = (Math.max(own, other) + 0.05) / (Math.min(own, other) + 0.05);
    if (ratio < 4.5) bad.push(`${text}: ${ratio.toFixed(2)}`);
  }
  return bad;
}"""
