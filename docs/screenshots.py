"""Make the pictures of docs/service.md: `python -m docs.screenshots`.

A small model is trained on most routes of the flights from New York, a service is started with it, the autumn is sent
to it day by day, another model is brought in on the way, and a headless Chromium looks at the dashboard. Takes some
minutes. Needs the extras demo, serve and dev, and Chromium.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import torch
from PIL import Image
from playwright.sync_api import sync_playwright

from aru import Forecaster, NetworkOptions
from aru.datasets import nyc_flights
from aru.demo.replay import Plan, split
from aru.serve.bundles import pack_folder
from tests.serve.browser import LAUNCH

IMAGES = Path(__file__).with_name("images")
END = pd.Timestamp("2013-12-31")
PLAN = Plan(pd.Timestamp("2013-08-31"), shift=END, stream_end=END, routes=None, steps=400, trees=0)
SHOWN = pd.Timestamp("2013-12-12")  # the day of the pictures
BROUGHT_IN = pd.Timestamp("2013-10-13")  # the challenger
MODELS = {"model": None, "challenger": "auto"}  # their lags
SERIES = "JFK-LAX"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 812}


def main() -> None:
    """Train, stream, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the model here, and use the one that is there")
    with tempfile.TemporaryDirectory() as scratch:
        folder = parser.parse_args().folder or Path(scratch)
        data = nyc_flights.load()
        train, live = split(data.df, PLAN, seed=0)
        for name, lags in MODELS.items():
            if not (folder / name).exists():
                build(lags).fit(train, static_df=data.static_df, val_size=0).save(folder / name)
        with service(folder / "model", Path(scratch) / "state.db") as url:
            stream(url, live.merge(data.static_df, on="unique_id"), folder / "challenger")
            photograph(url)


def build(lags: Any) -> Forecaster:
    """A model that knows no lags leaves much to the local fit: to show the page, not how well ARU does."""
    torch.set_num_threads(1)
    return Forecaster(
        h=7,
        freq="D",
        model="aru-rnn",
        input_size=14,
        futr_exog_list=nyc_flights.FUTR_EXOG,
        hist_exog_list=nyc_flights.HIST_EXOG,
        stat_exog_list=nyc_flights.STAT_EXOG,
        lags=lags,
        network=NetworkOptions(scaler="mean"),
        distribution="student-t",
        max_steps=PLAN.steps,
        accelerator="cpu",
    )


@contextmanager
def service(model: Path, state: Path) -> Iterator[str]:
    """`aru serve` on a free port."""
    command = [
        sys.executable,
        "-m",
        "aru.cli",
        "serve",
        model,
        "--state",
        state,
        "--port",
        "0",
        "--json",
        "--keep",
        "400d",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait()


def stream(url: str, rows: pd.DataFrame, challenger: Path) -> None:
    """Send day after day what departed, and in the end the covariates of the days to come."""
    table = {"Content-Type": "text/csv"}
    with httpx.Client(base_url=url, timeout=60, headers=table) as client:
        for day, part in rows[rows["ds"].between(PLAN.train_end, SHOWN, inclusive="right")].groupby("ds"):
            client.post("/v1/observations", content=part.to_csv(index=False)).raise_for_status()
            if day == BROUGHT_IN:
                headers = {"Content-Type": "application/x-tar"}
                client.put("/v1/models/model", content=pack_folder(challenger), headers=headers).raise_for_status()
                while client.get("/v1/models/model").json()["versions"][1]["status"] == "building":
                    time.sleep(0.5)
            time.sleep(1.5 if day >= BROUGHT_IN else 0)  # so that each day is scored by itself
        ahead = rows[rows["ds"] > SHOWN][["unique_id", "ds", *nyc_flights.FUTR_EXOG]]
        client.post("/v1/forecasts", content=ahead.to_csv(index=False)).raise_for_status()


def photograph(url: str) -> None:
    """Overview and series, light and dark, wide and narrow."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver, driver.chromium.launch(**LAUNCH) as browser:

        def take(name: str, path: str, size: Any, scheme: Any, **more: Any) -> None:
            page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce", **more)
            page.goto(f"{url}/{path}")
            page.wait_for_selector("main[aria-busy=false]")
            chart = page.locator("svg.chart").first
            chart.scroll_into_view_if_needed()
            if size is DESKTOP:  # point at the chart, as a reader would
                box = chart.bounding_box()
                assert box is not None
                page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"])
                page.locator(".tip").first.wait_for()
            picture = Image.open(io.BytesIO(page.screenshot(full_page=size is DESKTOP)))
            few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            few.save(IMAGES / f"{name}.png", optimize=True)
            page.close()

        for scheme in ("light", "dark"):
            take(f"overview-{scheme}", "", DESKTOP, scheme)
            take(f"challenger-{scheme}", "", {"width": 1280, "height": 760}, scheme)
            take(f"series-{scheme}", f"#/series/{SERIES}", DESKTOP, scheme)
        take("overview-phone", "", PHONE, "light", device_scale_factor=2)
        take("challenger-phone", "", {"width": 375, "height": 900}, "dark", device_scale_factor=2)
        take("series-phone", f"#/series/{SERIES}", PHONE, "dark", device_scale_factor=2)


if __name__ == "__main__":
    main()
