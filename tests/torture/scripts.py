"""Names of series that are scripts, in a real browser: none of them ever runs."""

from __future__ import annotations

import importlib.util
import itertools
import unittest
from collections.abc import Iterator
from urllib.parse import quote

import pandas as pd

from aru import Stream
from aru.serve.options import Options
from tests.making import make
from tests.serve.browser import CHROMIUM, LAUNCH
from tests.serve.conftest import Running
from tests.shops import BASE, TRAINED, H, both, rows
from tests.torture import Attack, Outcome

CODE = "document.title='taken';window.taken=1;fetch('/taken')"
FORMS = (
    "<script>{code}</script>",
    '<img src=x onerror="{code}">',
    "<svg onload={code}>",
    '"><script>{code}</script>',
    "' onmouseover='{code}' x='",
    '" autofocus onfocus="{code}" x="',
    "javascript:{code}//",
    "</title><script>{code}</script>",
    "</script><script>{code}</script>",
    "<iframe srcdoc='<script>parent.{code}</script>'>",
    "<a href=javascript:{code}>x</a>",
    "<style>@import 'javascript:{code}'</style>",
    "${{{code}}}",
    "{{{{constructor.constructor('{code}')()}}}}",
    "<math><mtext><script>{code}</script>",
    "<details open ontoggle={code}>",
    "<body onload={code}>",
    "\N{RIGHT-TO-LEFT OVERRIDE}<script>{code}</script>",
    "%3Cscript%3E{code}%3C/script%3E",
    "&lt;script&gt;{code}&lt;/script&gt;",
    "`${{{code}}}`",
    "--><script>{code}</script><!--",
    "]]><script>{code}</script>",
    "<object data=javascript:{code}>",
)


def names() -> Iterator[str]:
    """Hostile names, without end: every form once, then in pairs."""
    plain = [form.format(code=CODE) for form in FORMS]
    yield from plain
    for one, other in itertools.permutations(plain, 2):
        yield one + other


def in_a_browser(size: int) -> Outcome:
    """Search for this many series and open their pages: no script runs, no element appears, nobody is asked."""
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        raise unittest.SkipTest("needs playwright and Chromium")
    from playwright.sync_api import sync_playwright

    chosen = list(itertools.islice(names(), size))
    running = Running(Stream(make(**BASE).fit(both(range(TRAINED)))), Options(port=0))
    wrong: list[str] = []
    try:
        for day in range(TRAINED, TRAINED + 2 * H):
            running.post(pd.concat([rows(name, [day]) for name in chosen])).raise_for_status()
        with sync_playwright() as driver, driver.chromium.launch(**LAUNCH) as browser:
            page = browser.new_page()
            page.on("dialog", lambda dialog: (wrong.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
            page.on("request", lambda request: wrong.append(request.url) if request.url.endswith("/taken") else None)
            for name in chosen:
                page.goto(f"{running.url}/#/series/{quote(name, safe='')}")
                page.get_by_role("heading", name=name, exact=True).wait_for()
                page.keyboard.press("/")
                page.keyboard.type(name[:12])
                page.get_by_role("option").first.wait_for()
                page.keyboard.press("Escape")
                strange = page.locator(":is(main, header) :is(img, script, iframe, object, math, style)").count()
                if strange or page.title() != f"{name} · aru" or page.evaluate("'taken' in window"):
                    wrong.append(name)
    finally:
        running.stop()
    return Outcome(
        len(chosen), len(wrong), f"first: {wrong[0]}" if wrong else "names shown as text, no request, no dialog"
    )


ATTACKS = [Attack("scripts as names of series, in Chromium", in_a_browser, 4, 200, slow=True)]
