"""What the documentation shows, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "adapt",
            "choosing",
            "guide",
            "learning",
            "method",
            "methods",
            "operations",
            "peers",
            "pretrained",
            "reproduction",
            "service",
            "streaming",
        )
    ),
]


def blocks(page: str) -> str:
    """The Python blocks of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
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


@pytest.mark.parametrize(
    "page", [*PAGES, "docs/scale.md", "docs/onnx.md", "docs/architecture.md", "docs/torture.md", "docs/integrations.md"]
)  # whose examples have tests of their own
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_the_file_tree_of_the_readme_is_complete() -> None:
    text = (ROOT / "README.md").read_text()
    for path in (ROOT / "src" / "aru").iterdir():
        if path.name.startswith("_") or path.name == "py.typed":
            continue
        assert path.name in text, f"README's file tree lacks {path.name}"
