"""The examples of docs/integrations.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "integrations.md"
HEADINGS = {
    "sklearn": "scikit-learn and joblib",
    "sktime": "sktime",
    "darts": "Darts",
    "gluonts": "GluonTS",
    "nixtla": "neuralforecast and mlforecast",
    "mlflow": "MLflow",
    "fev": "fev",
}


def blocks(host: str) -> str:
    """The Python blocks below the heading of a host, as one program."""
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE))
    return "\n".join(re.findall(r"```python\n(.*?)```", sections[HEADINGS[host]], flags=re.DOTALL))


def run(host: str) -> None:
    """Run them."""
    exec(compile(blocks(host), f"integrations.md: {host}", "exec"), {})
