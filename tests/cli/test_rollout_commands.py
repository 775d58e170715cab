"""`aru rollout`, `aru fit` on kept rows, and copies of a service's states: the commands of docs/operations.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.store.address import beside
from tests.cli.running import TINY, aru, fails, sales, write, write_text
from tests.postgres import ADMIN, USER, Server
from tests.postgres import programs as postgres_programs
from tests.serve.test_batching import assert_same

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {"read": "a-token-to-read-with", "write": "a-token-to-write-with", "admin": "a-token-to-decide-with"}


class Service:
    """`aru serve` with tokens."""

    def __init__(self, folder: Path, model: Path, state: str | Path, *options: str) -> None:
        self.tokens = write_text(folder / "tokens", "".join(f"{scope} {token}\n" for scope, token in TOKENS.items()))
        command = [sys.executable, "-m", "aru.cli", "serve", model, "--state", state, "--port", "0", "--json"]
        self.child = subprocess.Popen(
            [*command, "--token-file", self.tokens, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        )
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.child.communicate()[1]
        self.url = json.loads(line)["address"]

    def post(self, frame: pd.DataFrame, path: str = "/v1") -> dict[str, object]:
        headers = {"authorization": f"Bearer {TOKENS['write']}", "content-type": "text/csv"}
        body = frame.to_csv(index=False, date_format="%Y-%m-%d")
        answer = httpx.post(f"{self.url}{path}/observations", content=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    @property
    def named(self) -> list[str | Path]:
        """The options by which commands find it."""
        return ["--url", self.url, "--token-file", self.tokens]

    def end(self) -> str:
        self.child.send_signal(signal.SIGTERM)
        return self.child.communicate(timeout=60)[1]


def documented(word: str, places: dict[str, str | Path]) -> list[list[str]]:
    """The commands of the block of docs/operations.md with this word, with other paths and names."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), flags=re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert places.keys() <= {part for line in lines for part in line}
    return [[str(places.get(part, part)) for part in line] for line in lines]


def test_retrain_shadow_promote_in_three_commands(model: Path, tmp_path: Path, state: str | Path) -> None:
    service = Service(tmp_path, model, state, "--keep", "400d")
    try:
        for day in range(24, 60):
            service.post(sales(day, day + 1))
        places = {"shops-2": tmp_path / "model-2", "shops": "model", "admin-token": service.tokens}
        retrain, shadow, promote = documented("aru rollout start", {"/var/lib/aru/states/shops.db": state, **places})
        assert [line[0] for line in (retrain, shadow, promote)] == ["aru"] * 3
        fitted = aru(*retrain[1:], *TINY, "--seed", "3", "--json")
        assert fitted.code == 0, fitted.err
        assert fitted.json["rows"] == 3 * 36
        service.post(sales(60, 61))  # after training
        started = aru(*shadow[1:], "--url", service.url, "--json")
        assert started.code == 0, started.err
        assert [(v["role"], v["status"]) for v in started.json["versions"]] == [
            ("champion", "serving"), ("challenger", "shadowing"),
        ]  # fmt: skip
        shown = aru("rollout", "status", *service.named)
        assert "challenger" in shown.out
        assert "shadowing" in shown.out
        assert "Version 2 is the challenger, not 7" in fails("rollout", "promote", *service.named, "--version", "7")
        assert aru(*promote[1:], "--url", service.url).code == 0
        service.post(sales(61, 62))
        assert "already" in fails("rollout", "start", tmp_path / "model-2", *service.named)
        back = aru("rollout", "rollback", *service.named, "--json").json
        assert [(v["version"], v["role"]) for v in back["versions"]] == [(1, "champion"), (2, "former")]
        assert aru("rollout", "rollback", *service.named).code == 0
        assert aru("rollout", "drop", "1", *service.named).code == 0
        assert "has no former" in fails("rollout", "rollback", *service.named)
        assert "has no challenger" in fails("rollout", "promote", *service.named)
        info = aru("state", "info", state, "--json").json  # of the champion, wherever it is
        assert (info["version"], info["observations"]) == (2, 3 * 38)
    finally:
        log = service.end()
    assert "Traceback" not in log, log
    second = Forecaster.load(tmp_path / "model-2")
    expected = Stream(second, correctable_steps=7)
    for day in (60, 61):
        expected.update(sales(day, day + 1)[["unique_id", "ds", "y"]])
    with Stream(second, beside(state, "2")) as stream:
        assert_same(stream, expected)
    again = Service(tmp_path, model, state)  # the folder has another version: the promoted one is served
    try:
        assert "duplicates" in again.post(sales(61, 62))
        assert again.post(sales(62, 63))["applied"] == 3
    finally:
        assert "version 2 of model is the champion" in again.end()


def test_tokens_have_scopes(model: Path, tmp_path: Path) -> None:
    service = Service(tmp_path, model, tmp_path / "state.db")
    try:
        needed = {
            ("GET", "/v1/models"): "read",
            ("GET", "/metrics"): "read",
            ("POST", "/v1/forecasts"): "read",
            ("POST", "/v1/models/model/forecasts"): "read",
            ("POST", "/v1/observations"): "write",
            ("POST", "/v1/models/model/observations"): "write",
            ("DELETE", "/v1/series/nobody/v1/forecasts"): "write",
            ("PUT", "/v1/models/model"): "admin",
            ("POST", "/v1/models/model/promote"): "admin",
            ("POST", "/v1/models/model/rollback"): "admin",
            ("DELETE", "/v1/models/model/versions/2"): "admin",
        }
        for (method, path), least in needed.items():
            for at, (_, token) in enumerate(TOKENS.items()):
                headers = {"authorization": f"Bearer {token}"}
                answer = httpx.request(method, service.url + path, headers=headers)
                refused = at < list(TOKENS).index(least)
                assert (answer.status_code == 403) == refused, (method, path, token, answer.text)
            assert httpx.request(method, service.url + path).status_code == 401
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        reader = write_text(tmp_path / "reader", f"read {TOKENS['read']}\n")
        told = ["--url", service.url, "--token-file", reader]
        assert aru("rollout", "status", *told).code == 0
        assert "needs a token of scope admin" in fails("rollout", "start", model, *told)
        every = write_text(tmp_path / "every", "".join(f"{scope} {TOKENS[scope]}\n" for scope in reversed(TOKENS)))
        refused = fails("rollout", "start", model, "--url", service.url, "--token-file", every)
        assert "keeps no rows" in refused  # in whatever order: the token of scope admin is taken
    finally:
        service.end()
    assert "does not answer" in fails("rollout", "status", "--url", service.url)
    for text, says in (
        ("root 0123456789abcdef", "no scope"), ("read a b", "more than a scope"), ("\n", "no token"),
        ("read 0123456789abcdef\nadmin 0123456789abcdef", "a token twice"),
    ):  # fmt: skip
        message = fails(
            "serve", model, "--state", tmp_path / "x.db", "--token-file", write_text(tmp_path / "bad", text)
        )
        assert says in message


def rolled_out(folder: Path, model: Path, state: str | Path) -> Service:
    """A service whose second version was promoted, with rows of three days."""
    other = folder / "model-2"
    aru("fit", write(sales(), folder / "sales.csv"), other, *TINY, "--seed", "9")
    service = Service(folder, model, state, "--keep", "400d")
    service.post(sales(24, 26))
    aru("rollout", "start", other, *service.named)
    aru("rollout", "promote", *service.named)
    service.post(sales(26, 27))
    return service


def goes_on(restored: Service) -> None:
    """It has the rows of three days and both versions, and takes the fourth day."""
    try:
        assert restored.post(sales(26, 28)) | {"new_series": [], "late": [], "held_back": []} == {
            "applied": 3, "duplicates": 3, "corrected": 0, "gaps_filled": 0, "new_series": [], "late": [],
            "held_back": [],
        }  # fmt: skip
        found = aru("rollout", "status", *restored.named, "--json").json
        assert [(v["version"], v["role"]) for v in found["versions"]] == [(2, "champion"), (1, "former")]
        assert aru("rollout", "rollback", *restored.named).code == 0
        assert restored.post(sales(26, 28))["duplicates"] == 6
    finally:
        restored.end()


def test_a_backup_of_all_versions_is_restored(model: Path, tmp_path: Path) -> None:
    """While the service runs; a new one goes on from the copy, with the same versions."""
    models, states, copy = tmp_path / "models", tmp_path / "states", tmp_path / "copy"
    shutil.copytree(model, models / "shops")
    service = rolled_out(tmp_path, models, states)
    backup, stop, *restore, own, begin = documented("rm -r", {"/var/lib/aru/states": states, "/var/backups/aru": copy})
    assert [line[0] for line in (backup, stop, own, begin)] == ["aru", "systemctl", "chown", "systemctl"]
    copied = aru(*backup[1:], "--json").json
    assert sorted(Path(file).name for file in copied["files"]) == ["shops.db", "shops.db.2"]
    service.post(sales(27, 28))
    service.end()
    for line in restore:
        subprocess.run(line, check=True)
    goes_on(Service(tmp_path, models, states))


def test_a_dump_of_postgres_is_restored(model: Path, tmp_path: Path, postgres_server: Server) -> None:
    """With the commands of docs/operations.md, the dump while the service runs."""
    psycopg = pytest.importorskip("psycopg")
    programs, database = postgres_programs(), f"forecasts_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.url("postgres", ADMIN), autocommit=True) as session:
        session.execute(f"CREATE DATABASE {database} OWNER {USER}")
    there = {**os.environ, "PGHOST": str(postgres_server.folder), "PGUSER": USER}
    service = rolled_out(tmp_path, model, postgres_server.url(database))
    with (tmp_path / "aru.dump").open("wb") as dump:
        subprocess.run([programs / "pg_dump", "-Fc", database], check=True, stdout=dump, env=there)
    service.post(sales(27, 29))
    service.end()
    restore = [programs / "pg_restore", "--clean", "--if-exists", "-d", database, tmp_path / "aru.dump"]
    done = subprocess.run(restore, capture_output=True, text=True, env=there)
    assert (done.returncode, done.stderr) == (0, "")
    goes_on(Service(tmp_path, model, postgres_server.url(database)))


def test_what_fit_says_about_a_store_without_rows(model: Path, tmp_path: Path) -> None:
    with Stream(model, tmp_path / "state.db") as stream:
        stream.update(sales(24, 25)[["unique_id", "ds", "y"]])
    assert "keeps no rows. Start the service with --keep" in fails("fit", tmp_path / "state.db", tmp_path / "m", *TINY)


def test_forgotten_series_are_noted_for_versions_that_come(model: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    service = Service(tmp_path, model, state, "--keep", "1d")
    service.post(sales(24, 40))
    service.end()
    assert aru("state", "forget", state, "--ids", "007").code == 0
    fitted = aru("fit", state, tmp_path / "model-2", *TINY, "--id-col", "shop", "--json")
    assert fitted.json["rows"] == 2 * 16, fitted.err
    assert "shop" in Forecaster.load(tmp_path / "model-2").predict().columns


def test_a_folder_of_models_is_served_by_their_names(model: Path, tmp_path: Path) -> None:
    models, states = tmp_path / "models", tmp_path / "states"
    shutil.copytree(model, models / "shops")
    Forecaster.from_pretrained("nano", h=3, freq="D").save(models / "any-nano")
    (models / "notes").mkdir()
    service = Service(tmp_path, models, states, "--default", "shops", "--keep", "400d")
    try:
        listed = httpx.get(f"{service.url}/v1/models", headers={"authorization": f"Bearer {TOKENS['read']}"}).json()
        assert (listed["default"], [m["model"] for m in listed["models"]]) == ("shops", ["any-nano", "shops"])
        assert service.post(sales(24, 25), "/v1/models/shops")["applied"] == 3
        assert service.post(sales(24, 25))["duplicates"] == 3
        plain = sales(0, 30)[["unique_id", "ds", "y"]].assign(unique_id=lambda f: "x" + f["unique_id"])
        assert service.post(plain, "/v1/models/any-nano")["applied"] == 90
        names = {name: [m["series"] for m in listed["models"] if m["model"] == name] for name in ("shops", "any-nano")}
        assert names == {"shops": [3], "any-nano": [0]}
        status = aru("rollout", "status", *service.named, "--name", "any-nano", "--json").json
        assert (status["model"], status["series"]) == ("any-nano", 3)
        text = httpx.get(f"{service.url}/metrics", headers={"authorization": f"Bearer {TOKENS['read']}"}).text
        assert 'aru_series{model="any-nano"} 3.0' in text
        assert 'aru_rows_total{model="shops",outcome="applied"} 3.0' in text
        assert "There is no model 'other'" in fails("rollout", "status", *service.named, "--name", "other")
    finally:
        service.end()
    assert {path.name for path in states.iterdir()} >= {"shops.db", "any-nano.db"}
    copied = aru("state", "backup", states, tmp_path / "copy", "--json").json
    assert sorted(Path(file).name for file in copied["files"]) == ["any-nano.db", "shops.db"]
    again = ["serve", models, "--state"]
    assert "is a file" in fails(*again, tmp_path / "tokens", "--port", "0")
    assert "There is no model 'no'" in fails(*again, states, "--port", "0", "--default", "no")
    nowhere = model / "model.json" / "states"
    assert "cannot be created" in fails(*again, nowhere, "--port", "0")
    shutil.copytree(model, models / "a b")
    assert "cannot be the name of a model" in fails(*again, states, "--port", "0")
    for keep in ("soon", "400", ""):
        assert f"--keep '{keep}' is no time" in fails("serve", model, "--state", tmp_path / "y.db", "--keep", keep)


def test_a_model_joins_the_only_one_of_a_folder(model: Path, tmp_path: Path) -> None:
    """States are where they will be when there are more models, in a folder that was made for them."""
    models, states = tmp_path / "models", tmp_path / "states"
    shutil.copytree(model, models / "shops")
    states.mkdir()
    service = Service(tmp_path, models, states, "--keep", "400d")
    try:
        assert service.post(sales(24, 25), "/v1/models/shops")["applied"] == 3
    finally:
        service.end()
    assert (states / "shops.db").is_file()
    shutil.copytree(model, models / "more")
    service = Service(tmp_path, models, states, "--default", "shops")
    try:
        assert service.post(sales(24, 26))["applied"] == 3
        assert service.post(sales(24, 26), "/v1/models/more")["applied"] == 6
    finally:
        service.end()


@pytest.mark.parametrize("second", ["shops__2", "sh ops", "-shops", "x" * 41])
def test_names_that_stores_could_confuse_are_refused(model: Path, tmp_path: Path, second: str) -> None:
    for name in ("shops", second):
        shutil.copytree(model, tmp_path / "models" / name)
    assert "cannot be the name" in fails("serve", tmp_path / "models", "--state", tmp_path / "states", "--port", "0")
