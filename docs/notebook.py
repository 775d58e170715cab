"""Run the notebook of the docs, keep what it shows, and write its page: `python -m docs.notebook`.

The notebook, `docs/notebooks/flights.ipynb`, is the source: change its cells in Jupyter or in an editor, then run this.
Cells run in one namespace, as in Jupyter. `docs/start/flights.md` is the notebook as a page; its pictures go into
`docs/figures/`. Takes half a minute and needs the extra demo.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("notebooks") / "flights.ipynb"
PAGE = Path(__file__).with_name("start") / "flights.md"
FIGURES = Path(__file__).with_name("figures")
NOTE = "This is [a notebook](../notebooks/flights.ipynb) as it ran. `pip install 'aru-forecast[demo]'` has its data."


def cells(notebook: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The cells of one kind, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code and keep its output in the notebook; return what it defined."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook, "code"), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _execute("".join(cell["source"]), names)
        shown = [{"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}]
        data = {} if value is None else {kind: _lines(text) for kind, text in _looks(value).items()}
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        cell["execution_count"] = number
        cell["outputs"] = [*(shown if printed.getvalue() else []), *([result] if data else [])]
    return names


def _execute(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line if that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def _looks(value: Any) -> dict[str, str]:
    """A value as Jupyter shows it, by MIME type."""
    ways = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}
    rich = {kind: getattr(value, way)() for kind, way in ways.items() if hasattr(value, way)}
    return {**rich, "text/plain": repr(value)}


def page(notebook: dict[str, Any]) -> str:
    """The notebook as Markdown. Pictures are files of `FIGURES`, numbered."""
    parts, pictures = [], pictures_of(notebook)
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            found = output.get("data", {"text/plain": output.get("text")})
            picture = "".join(found.get("image/svg+xml", []))
            name = next((name for name, svg in pictures.items() if svg == picture), None)
            plain = "".join(found["text/plain"]).rstrip()
            parts.append(f"![What the cell draws](../figures/{name})" if name else f"```text\n{plain}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n{NOTE}\n{rest}\n"


def pictures_of(notebook: dict[str, Any]) -> dict[str, str]:
    """The pictures that the cells draw, by file name."""
    data = [output.get("data", {}) for cell in cells(notebook, "code") for output in cell["outputs"]]
    drawn = ["".join(d["image/svg+xml"]) for d in data if "image/svg+xml" in d]
    return {f"{NOTEBOOK.stem}-{number}.svg": svg for number, svg in enumerate(drawn, 1)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run it, and write notebook, page and pictures."""
    notebook = json.loads(NOTEBOOK.read_text())
    run(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    for name, svg in pictures_of(notebook).items():
        (FIGURES / name).write_text(svg)
    PAGE.write_text(page(notebook))


if __name__ == "__main__":
    main()
