"""What docs/scale.md shows, runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru import Stream
from tests.shops import TRAINED, both
from tests.spark.conftest import MARKS, ROOT

pytestmark = MARKS


def test_the_example_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(), flags=re.DOTALL)
    # Spark keeps to the folder that it was started in.
    for name in ("model", "observations", "checkpoint", "forecasts"):
        program = program.replace(f'"{name}/"', f'"{tmp_path / name}"')
    exec(compile(program, "docs/scale.md", "exec"), {})


def test_the_query_on_messages_runs_with_files_in_place_of_kafka(spark: Any, saved: Path, tmp_path: Path) -> None:
    """Kafka's source and sink are exchanged for text and JSON files, and nothing else."""
    from aru.spark import forecast_stream

    blocks = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(), flags=re.DOTALL)
    (program,) = [block for block in blocks if "kafka" in block]
    broker = '.format("kafka").option("kafka.bootstrap.servers", "broker:9092")'
    for old, new in {
        f'{broker}.option("subscribe", "sales")': '.format("text")',
        "source.load()": f'source.load("{tmp_path / "messages"}")',
        f'{broker}.option("topic", "forecasts")': f'.format("json").option("path", "{tmp_path / "output"}")',
        "s3a://bucket/checkpoint": str(tmp_path / "checkpoint"),
        '"model/"': f'"{saved}"',
        ".start()": ".trigger(availableNow=True).start().awaitTermination()",
    }.items():
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    assert "kafka" not in program
    new = both([TRAINED], "abn")[["unique_id", "ds", "y"]]
    messages = new.to_json(orient="records", lines=True, date_format="iso").splitlines()
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "0.txt").write_text("\n".join([*messages, "no message"]))
    exec(compile(program, "docs/scale.md", "exec"), {"spark": spark, "forecast_stream": forecast_stream})
    output = spark.read.json(str(tmp_path / "output")).toPandas()
    values = pd.DataFrame([json.loads(value) for value in output["value"]])
    assert values[values["kind"] == "left_out"]["reason"].tolist() == ["unique_id is missing"]
    values = values.assign(key=output["key"])[values["kind"] == "forecast"].sort_values(
        ["key", "ds"], ignore_index=True
    )
    stream = Stream(saved)
    stream.update(new)
    wanted = stream.predict(level=[90], ids=["a", "b", "n"])
    assert values["key"].tolist() == wanted["unique_id"].tolist()
    assert pd.to_datetime(values["ds"]).tolist() == wanted["ds"].tolist()
    names = wanted.columns[2:]
    pd.testing.assert_frame_equal(values[names], wanted[names], rtol=1e-5)
