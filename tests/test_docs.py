"""What the documentation shows, runs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import aru
from aru.errors import AruError, AruWarning
from docs.notebook import FIGURES, NOTEBOOK, PAGE, pictures_of, run
from docs.notebook import page as page_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]
# Their examples have tests of their own.
ELSEWHERE = {"docs/scale.md", "docs/onnx.md", "docs/start/flights.md", "docs/integrations.md"}
SLOW = {"docs/start/covariates.md"}  # and all of docs/howto
SITE = ROOT / "zensical.toml"


def blocks(page: str) -> str:
    """The Python blocks of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))


def examples() -> list[Any]:
    """The pages with examples; those that take longer are marked."""
    shown = [page for page in PAGES if page not in ELSEWHERE and blocks(page)]
    long = {page for page in shown if page in SLOW or page.startswith("docs/howto/")}
    return [pytest.param(page, marks=pytest.mark.slow) if page in long else page for page in shown]


@pytest.mark.parametrize("page", examples())
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sales = [f"shop,{day:%Y-%m-%d},{20 + 8 * (day.weekday() > 4)}" for day in pd.date_range("2024", periods=90)]
    Path("sales.csv").write_text("\n".join(["unique_id,ds,y", *sales]))
    names: dict[str, object] = {}
    exec(compile(blocks(page), page, "exec"), names)
    if page == "README.md":
        assert len(names["forecast"]) == 30 * 14  # type: ignore[arg-type]
        assert names["result"].applied == 30  # type: ignore[attr-defined]
        assert {"cutoff", "aru", "aru-median", "aru-lo-90", "aru-hi-90"} <= set(names["backtest"].columns)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_quick_starts_run_one_after_the_other_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one who begins tries them: no page stumbles over the files of those before it."""
    monkeypatch.chdir(tmp_path)
    (order,) = (e["Quick starts"] for e in tomllib.loads(SITE.read_text())["project"]["nav"] if "Quick starts" in e)
    for page in (f"docs/{target}" for target in listed(order)):
        if page == "docs/start/service.md":
            text = (ROOT / page).read_text()
            assert all(Path(name).exists() for name in re.findall(r"@(\S+\.csv)", text))
            assert not any(Path(name).exists() for name in re.findall(r"--state (\S+)", text))
        elif page not in ELSEWHERE:
            exec(compile(blocks(page), page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_lists_and_tables_begin_after_an_empty_line(page: str) -> None:
    """Else they are part of the paragraph before them, on the site though not everywhere."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    item = re.compile(r"- |\d+\. |\|")
    for first, *more in (block.strip("\n").split("\n") for block in re.split(r"\n[ ]*\n", text)):
        if first[:1] not in ("", " ", "<") and not item.match(first):
            assert not any(map(item.match, more)), f"{page}: an empty line is missing after {first!r}"


def test_links_of_the_readme_work_on_a_package_index() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((?!https:)", text) == []
    targets = re.findall(
        r"https://(?:github.com/aru-forecast/aru/blob|raw.githubusercontent.com/aru-forecast/aru)/main/([^)\s#]+)", text
    )
    assert len(targets) > 20
    for target in targets:
        assert (ROOT / target).exists(), f"README.md links to {target}"
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, flags=re.M))
    assert set(re.findall(r"\[((?:docs/|CITATION)[^\]]*)\](?!:)", text)) == defined


def listed(entries: list[dict[str, Any]]) -> list[str]:
    """The pages of a navigation, in its order."""
    found: list[str] = []
    for target in (target for entry in entries for target in entry.values()):
        found += [target] if isinstance(target, str) else listed(target)
    return found


def test_every_page_of_the_site_is_listed_once() -> None:
    pages = listed(tomllib.loads(SITE.read_text())["project"]["nav"])
    assert sorted(pages) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_site_names_the_version_that_it_describes() -> None:
    project = tomllib.loads(SITE.read_text())["project"]
    assert project["site_name"] == f"aru {aru.__version__}"
    assert aru.__version__ in project["copyright"]


def test_every_error_has_a_section() -> None:
    page = (DOCS / "howto" / "errors.md").read_text()
    errors = [e for e in vars(aru.errors).values() if isinstance(e, type) and issubclass(e, (AruError, AruWarning))]
    assert len(errors) > 10
    for name in {error.__name__ for error in errors} - {"AruError", "InputError"}:
        assert f"## {name}\n" in page
        assert f"[`{name}`](#{name.lower()})" in page


def test_the_notebooks_page_is_what_the_notebook_shows() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert page_of(notebook) == PAGE.read_text()
    for name, svg in pictures_of(notebook).items():
        assert (FIGURES / name).read_text() == svg


@pytest.mark.slow
def test_the_notebook_runs_and_beats_last_week(as_users_run_it: None) -> None:
    names = run(json.loads(NOTEBOOK.read_text()))
    card = names["backtest"].scorecard
    assert card.series == 205
    assert card.model["nd"] < card.naive["nd"]


def test_the_file_tree_of_the_readme_is_complete() -> None:
    text = (ROOT / "README.md").read_text()
    for path in (ROOT / "src" / "aru").iterdir():
        if path.name.startswith("_") or path.name == "py.typed":
            continue
        assert path.name in text, f"README's file tree lacks {path.name}"
