"""Versions of a model: brought in, built from kept rows, shadowing, promoted, rolled back, dropped."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.data.clock import Clock
from aru.errors import StorageError
from aru.runtime.kept import kept_frames
from aru.serve.bundles import bundle_of, pack, unpack
from aru.serve.contest import Contest
from aru.serve.house import House
from aru.serve.options import Options
from aru.serve.rollout import RolloutError
from aru.serve.served import Served
from aru.serve.shadow import Shadow
from aru.store import open_store
from aru.store.address import beside, read_address
from tests.making import make
from tests.shops import BASE, TRAINED, H, both, rows

from .conftest import Running, Serve, as_json, assert_same_forecasts, error_of, forecast
from .test_batching import assert_same

TAR = {"content-type": "application/x-tar"}
DAY = 86400.0


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services look at their versions all the time."""
    monkeypatch.setattr("aru.serve.upkeep.LOOK", 0.02)
    monkeypatch.setattr("aru.serve.upkeep.REPORT", 0.0)


@pytest.fixture(scope="session")
def second() -> Forecaster:
    """Another model for the same series, with another horizon."""
    return make(**{**BASE, "h": H + 1, "max_steps": 6, "random_seed": 5}).fit(both(range(TRAINED)))


def put(running: Running, model: Forecaster) -> httpx.Response:
    return running.client.put("/v1/models/model", content=pack(model), headers=TAR)


def report(running: Running) -> dict[str, Any]:
    answer = running.client.get("/v1/models/model")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def until(running: Running, true: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Wait until a report says so."""
    end = time.monotonic() + 60
    while not true(found := report(running)):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def caught_up(found: dict[str, Any]) -> bool:
    return all(v["status"] != "building" and not v["behind"] for v in found["versions"])


def step(running: Running, path: str, version: int, **more: Any) -> httpx.Response:
    return running.client.post(f"/v1/models/model/{path}", json={"version": version, **more})


def roles(found: dict[str, Any]) -> dict[int, str]:
    return {version["version"]: version["role"] for version in found["versions"]}


def shadowed(model: Forecaster, *frames: pd.DataFrame) -> Stream:
    """What a version has after these rows."""
    stream = Stream(model, correctable_steps=2)
    for frame in frames:
        stream.update(frame, late="skip")
    return stream


@pytest.fixture
def running(serve: Serve, trained: Forecaster, state: str | Path) -> Iterator[Running]:
    """A service that keeps rows, with some days of them."""
    service = serve(trained, state, keep=400 * DAY, correctable_steps=2)
    for day in range(20, 26):
        assert service.post(both([day], "abn")).status_code == 200
    return service


def test_a_challenger_shadows_and_is_promoted_and_rolled_back(
    running: Running, second: Forecaster, trained: Forecaster, state: str | Path
) -> None:
    days = [both([day], "abn") for day in range(20, 40)]
    answer = put(running, second)
    assert answer.status_code == 200, answer.text
    assert roles(answer.json()) == {1: "champion", 2: "challenger"}
    error_of(put(running, second), 409, "RolloutError")
    until(running, caught_up)
    for day in days[6:12]:
        running.post(day)
        until(running, caught_up)
    found = until(running, lambda r: caught_up(r) and (r["contest"] or {}).get("series") == 3)
    assert found["contest"]["champion"]["observations"] == found["contest"]["shadow"]["observations"] > 0
    assert found["contest"]["champion"]["nd"] != found["contest"]["shadow"]["nd"]
    assert found["contest"]["series_better"] + found["contest"]["series_worse"] == 3
    assert running.client.get("/v1/monitor/fleet").json()["rollout"]["contest"]["window"] == H
    before = forecast(running, level=[80])
    assert_same_forecasts(before, shadowed(trained, *days[:12]).predict(level=[80]))
    error_of(step(running, "promote", 3), 409, "RolloutError")
    error_of(step(running, "rollback", 1), 409, "RolloutError")
    promoted = step(running, "promote", 2)
    assert promoted.status_code == 200, promoted.text
    assert roles(promoted.json()) == {2: "champion", 1: "former"}
    assert promoted.json()["h"] == H + 1
    assert_same_forecasts(forecast(running, level=[80]), shadowed(second, *days[:12]).predict(level=[80]))
    assert running.post(days[11]).json()["duplicates"] == 3  # what the old champion took in
    for day in days[12:16]:
        assert running.post(day).json()["applied"] == 3
        until(running, caught_up)
    until(running, lambda r: (r["contest"] or {}).get("series") == 3)  # now of the former champion
    back = step(running, "rollback", 1)
    assert roles(back.json()) == {1: "champion", 2: "former"}
    assert_same_forecasts(forecast(running, level=[80]), shadowed(trained, *days[:16]).predict(level=[80]))
    running.post(days[16])
    assert step(running, "rollback", 2).status_code == 200
    assert_same_forecasts(forecast(running, level=[80]), shadowed(second, *days[:17]).predict(level=[80]))
    until(running, caught_up)
    running.stop()
    for number, model in ((1, trained), (2, second)):
        with Stream(model, state if number == 1 else beside(state, str(number))) as stream:
            assert_same(stream, shadowed(model, *days[:17]))


def test_a_shadow_takes_corrections_deletions_new_series_and_columns(
    running: Running, trained: Forecaster, state: str | Path
) -> None:
    """In the order in which the champion took them, whether they come before, while or after it is built."""
    challenger = make(**{**BASE, "futr_exog_list": ["promo"], "random_seed": 3}).fit(both(range(TRAINED)))
    truth = Stream(challenger, correctable_steps=2)

    def send(frame: pd.DataFrame, **more: Any) -> None:
        body = {"observations": as_json(frame, "unique_id", "ds", "y", "promo"), **more}
        answer = running.client.post("/v1/observations", json=body)
        assert answer.status_code == 200, answer.text
        truth.update(frame, **{"late": "skip", **more})

    for name in "abn":  # the rows of the fixture came without promo
        running.client.delete(f"/v1/series/{name}")
    truth.forget(["a", "b"])
    send(both([26, 27, 28], "abn"))
    send(both([28], "a").assign(y=3.5), late="correct")
    until(running, lambda r: put(running, challenger).status_code == 200)
    send(both([27, 28], "bn").assign(y=7.25), late="correct")
    running.client.delete("/v1/series/n")
    truth.forget(["n"])
    send(both([29, 30], "abno"))
    error_of(running.post(both([5])), 409, "LateError")
    found = until(running, caught_up)
    assert found["versions"][1]["refused_rows"] == 18  # without promo; of series that were deleted since
    assert "promo" in found["versions"][1]["refused_reason"]
    send(both([30], "ab").assign(y=1.0), late="correct")
    send(both([29, 30, 31], "abno").assign(y=3.0), late="skip")
    error = error_of(step(running, "promote", 2), 409, "RolloutError")
    assert "could not take 18 rows" in error["message"]
    assert step(running, "promote", 2, force=True).status_code == 200
    with Stream(challenger, beside(state, "2")) as stream:
        assert_same(stream, truth)


def test_rows_that_are_kept_train_a_model(running: Running, trained: Forecaster) -> None:
    running.post(both([26, 27], "ab"))
    running.post(both([27], "a").assign(y=4.0), late="correct")
    assert running.post(both([25, 26], "abn").assign(y=9.0), late="skip").json()["applied"] == 1
    running.client.delete("/v1/series/b")
    running.post(rows("b", [28]))
    rows_, static = kept_frames(running.stream.store)
    assert static is None
    expected = pd.concat([rows("a", range(20, 28)), rows("b", [28]), rows("n", range(20, 27))])
    expected.loc[(expected["unique_id"] == "a") & (expected["ds"] == rows("a", [27])["ds"][0]), "y"] = 4.0
    expected.loc[(expected["unique_id"] == "n") & (expected["ds"] == rows("n", [26])["ds"][0]), "y"] = 9.0
    wanted = expected[["unique_id", "ds", "y"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows_[["unique_id", "ds", "y"]], wanted, check_dtype=False)


def test_rows_are_kept_as_long_as_was_said(
    serve: Serve, trained: Forecaster, state: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aru.serve.upkeep.TRIM", 0.0)
    service = serve(trained, state, keep=2.0)
    service.post(both([20]))
    found = report(service)
    assert found["keep_seconds"] == 2.0
    assert found["kept_bytes"] > 0
    assert found["kept_since"] is not None
    first = service.stream.store.settled()
    time.sleep(2.0)
    service.post(both([21]))
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with service.stream.store.reading() as view:
            if [number for number, _ in view.entries(0, 9)] == [first + 1]:
                break
        time.sleep(0.02)
    else:
        raise AssertionError
    service.stop()
    again = serve(trained, state)  # as in the store
    assert report(again)["keep_seconds"] == 2.0
    again.stop()
    off = serve(trained, state, keep=0.0)
    off.post(both([22]))
    assert report(off)["keep_seconds"] is None
    assert off.stream.store.settled() == first + 1
    error_of(put(off, make(**BASE, random_seed=9).fit(both(range(TRAINED)))), 409, "RolloutError")


def test_a_shadow_is_dropped_with_all_it_had(running: Running, second: Forecaster, state: str | Path) -> None:
    put(running, second)
    until(running, caught_up)
    assert roles(running.client.delete("/v1/models/model/versions/2").json()) == {1: "champion"}
    error_of(running.client.delete("/v1/models/model/versions/2"), 409, "RolloutError")
    error_of(running.client.delete("/v1/models/model/versions/1"), 409, "RolloutError")
    with running.stream.store.reading() as view:
        assert view.keys("service") == [1, "rollout"]
    if isinstance(state, Path):
        names = {path.name for path in state.parent.iterdir()}
        assert not {name for name in names if name.startswith("state.db.2")}
    put(running, second)
    assert roles(until(running, caught_up)) == {1: "champion", 3: "challenger"}
    assert step(running, "promote", 3).status_code == 200
    third = make(**BASE, random_seed=8).fit(both(range(TRAINED)))
    put(running, third)
    until(running, caught_up)
    found = step(running, "promote", 4).json()
    assert roles(found) == {4: "champion", 3: "former"}
    running.post(both([26], "abn"))
    with open_store(state).reading() as view:
        assert view.keys() == []  # of the first version only the rollout is left
    assert running.client.get("/v1/series").json()["series"][0]["observations"] == TRAINED + 7


@pytest.mark.parametrize("promoted", [True, False])
def test_a_version_without_its_states_does_not_begin_anew(
    promoted: bool, running: Running, serve: Serve, trained: Forecaster, second: Forecaster, state: str | Path
) -> None:
    """As after a backup was restored in part: forecasts would know nothing of what came since training."""
    put(running, second)
    until(running, caught_up)
    if promoted:
        assert step(running, "promote", 2).status_code == 200
    running.stop()
    lost = open_store(beside(state, "2"))
    lost.remove()
    if promoted:
        with pytest.raises(StorageError, match=r"those of version 2 were there\. Restore all files"):
            House.open({"model": lambda: trained}, state, Options())
        return
    again = serve(trained, state)
    error_of(step(again, "promote", 2), 503, "StorageError")
    assert roles(again.client.delete("/v1/models/model/versions/2").json()) == {1: "champion"}
    assert put(again, second).status_code == 200
    until(again, caught_up)
    assert step(again, "promote", 2 + 1).status_code == 200


def test_scores_of_a_version_that_another_process_drops_meanwhile_are_not_kept(
    running: Running, second: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, served, summary = threading.Event(), running.served, Contest.summary

    def dropped_meanwhile(contest: Contest, clock: Clock | None) -> dict[str, Any]:
        if not scored.is_set():
            served.versions.change(lambda now: now.dropped("challenger"), scores=False)
        scored.set()
        return summary(contest, clock)

    monkeypatch.setattr(Contest, "summary", dropped_meanwhile)
    put(running, second)
    assert scored.wait(60)
    while served.shadows:  # the thread that keeps scores looks again
        time.sleep(0.02)
    assert report(running)["contest"] is None


def test_of_two_processes_that_bring_a_model_in_at_the_same_time_one_is_refused(
    running: Running, second: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that comes later leaves files and states of the other's challenger alone."""
    versions, before = running.served.versions, running.served.versions.rollout()
    put(running, second)
    until(running, caught_up)
    third = make(**BASE, random_seed=8).fit(both(range(TRAINED)))
    with monkeypatch.context() as patch:
        patch.setattr(versions, "rollout", lambda: before)  # as it was when the later one looked
        with pytest.raises(RolloutError, match="Version 2 is the challenger already"):
            versions.add(pack(third), running.stream)
    bundle = bundle_of(versions.home, 2)
    assert bundle is not None
    assert unpack(bundle, "cpu").runtime.engine.fingerprint == second.runtime.engine.fingerprint
    assert step(running, "promote", 2).status_code == 200
    counts = {row["unique_id"]: row["observations"] for row in running.client.get("/v1/series").json()["series"]}
    assert counts == {"a": TRAINED + 6, "b": TRAINED + 6, "n": 6}


def test_a_promotion_by_another_process_is_known_at_once(
    running: Running, second: Forecaster, serve: Serve, trained: Forecaster, state: str | Path
) -> None:
    """Before that process looks at the versions, and before the version that is dethroned has taken in new rows."""
    other = serve(trained, state, correctable_steps=2)
    with other.served.upkeep.between_looks():
        put(running, second)
        until(running, caught_up)
        with running.served.upkeep.between_looks():
            for path, version, name in (
                ("promote", 2, "p"), ("rollback", 1, "q"), ("rollback", 2, "r"), ("rollback", 1, "s"),
                ("rollback", 2, "t"),
            ):  # fmt: skip
                assert step(running, path, version).status_code == 200
                assert running.post(rows(name, [26])).json()["new_series"] == [name]
                if name == "p":
                    assert other.client.get("/v1/series/p").json()["observations"] == 1
                elif name == "q":
                    page = other.client.get("/v1/series").json()["series"]
                    assert [row["unique_id"] for row in page] == ["a", "b", "n", "p", "q"]
                elif name == "r":
                    made = other.client.post("/v1/forecasts", json={}).json()["forecasts"]
                    assert [row["unique_id"] for row in made].count("r") == H + 1
                elif name == "s":
                    assert other.client.delete("/v1/series/s").json() == {"forgotten": "s"}
                else:
                    late = other.post(rows("t", [26]).assign(y=9.0))
                    assert error_of(late, 409, "LateError")["rows"][0]["unique_id"] == "t"


def archive_with_a_hole() -> bytes:
    """A few bytes, of which a careless reader makes a terabyte."""
    head, sink = tarfile.TarInfo("model.json"), io.BytesIO()
    head.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(2**40)}
    head.pax_headers["GNU.sparse.map"] = "0,0"
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(head)
    return sink.getvalue()


def test_what_cannot_become_a_challenger(running: Running, serve: Serve, trained: Forecaster) -> None:
    client = running.client
    error_of(client.put("/v1/models/other", content=b"", headers=TAR), 404, "UnknownModelError")
    for path in ("observations", "forecasts"):
        error_of(client.post(f"/v1/models/other/{path}", json={}), 404, "UnknownModelError")
    error_of(client.put("/v1/models/model", content=b"{}"), 415, "ContentTypeError")
    for body in (b"", b"no archive", pack(trained)[:3000], archive_with_a_hole()):
        assert (
            "Send the files"
            in error_of(client.put("/v1/models/model", content=body, headers=TAR), 422, "ConfigError")["message"]
        )
    assert "already" in error_of(put(running, trained), 409, "RolloutError")["message"]
    error_of(client.post("/v1/models/model/promote", json={"version": 0}), 422, "SchemaError")
    error_of(client.post("/v1/models/model/promote", json={"version": 2, "else": 1}), 422, "SchemaError")
    error_of(client.post("/v1/models/model/promote", content=b'{"version": 2}'), 415, "ContentTypeError")
    error_of(step(running, "promote", 2), 409, "RolloutError")
    assert list(roles(report(running))) == [1]
    memory = serve(trained)
    error_of(put(memory, make(**BASE, random_seed=2).fit(both(range(TRAINED)))), 409, "RolloutError")


def test_a_pretrained_challenger_shadows_a_trained_champion(running: Running) -> None:
    nano = Forecaster.from_pretrained("nano", h=H, freq="D")
    assert put(running, nano).status_code == 200
    until(running, caught_up)
    running.post(both([26], "abn"))
    assert step(running, "promote", 2).status_code == 200
    truth = Stream(nano)
    truth.update(both(range(20, 27), "abn"))
    assert_same_forecasts(forecast(running, level=[80]), truth.predict(level=[80]))


def test_the_states_of_a_challenger_begin_with_those_it_was_saved_with(running: Running, second: Forecaster) -> None:
    """It was trained up to day 20; rows from there on are those of the champion. Nothing is counted twice."""
    put(running, second)
    until(running, caught_up)
    step(running, "promote", 2)
    counts = {row["unique_id"]: row["observations"] for row in running.client.get("/v1/series").json()["series"]}
    assert counts == {"a": TRAINED + 6, "b": TRAINED + 6, "n": 6}
    assert np.isfinite(forecast(running)["aru"]).all()


def test_two_processes_that_take_in_the_same_journal_leave_no_entry_out(
    running: Running, second: Forecaster, state: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is overtaken goes on after what the other one has taken in: entries 4 and 5 here."""
    monkeypatch.setattr("aru.serve.shadow.TAKEN_AT_ONCE", 6)  # two entries at a time
    place, champion = beside(state, "2"), running.stream.store

    def entries(after: int) -> list[tuple[int, bytes]]:
        with champion.reading() as view:
            return view.entries(after, 4)

    one, other = (Shadow(2, Stream(second, place, correctable_steps=2)) for _ in range(2))
    work = one.take_in(entries, 6)
    next(work)
    last = [number for number, _ in entries(0)][-1]
    assert [len(done) for done in other.take_in(entries, last - 1)] == [1]  # the third entry alone
    list(work)
    assert one.progress() == other.progress() == (6, 0, None)
    with champion.reading() as theirs, one.stream.store.reading() as ours:
        assert ours.entries(0, 99) == theirs.entries(0, 99)
    assert_same(one.stream, shadowed(second, *(both([day], "abn") for day in range(20, 26))))
    for shadow in (one, other):
        shadow.stream.close()


def test_a_shadow_ahead_of_its_champion_follows_no_longer(
    running: Running, second: Forecaster, trained: Forecaster, serve: Serve, state: str | Path
) -> None:
    """As when only the champion's store was restored from a backup."""
    put(running, second)
    until(running, caught_up)
    if isinstance(state, Path):
        with running.stream.store.writing() as change:  # which now lacks the last two entries
            change.delete([5, 6], "journal")
    else:
        _delete(state)
    found = until(running, lambda r: r["versions"][1]["status"] == "diverged")
    assert found["versions"][1]["role"] == "challenger"
    error_of(step(running, "promote", 2), 409, "RolloutError")
    assert running.client.delete("/v1/models/model/versions/2").status_code == 200


def _delete(url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(read_address(url).url) as session:
        session.execute(f"DELETE FROM {read_address(url).schema}.journal WHERE number > 4")


def test_a_pretrained_champion_is_challenged_and_served_again_after_a_restart(
    tmp_path: Path, second: Forecaster
) -> None:
    nano = Forecaster.from_pretrained("nano", h=H, freq="D")
    options = Options(port=0, keep=DAY)
    load = {"model": lambda: nano}

    def start() -> Served:
        house = House.open(load, tmp_path / "state.db", options)
        return house.models["model"]

    def wait(served: Served) -> None:
        end = time.monotonic() + 60
        while any(v["status"] == "building" or v["behind"] != 0 for v in served.report()["versions"][1:]):
            assert time.monotonic() < end
            time.sleep(0.02)

    served = start()
    served.service.stream.update(both(range(20)))
    served.challenge(pack(second))
    wait(served)
    served.close()
    served = start()
    wait(served)
    assert roles(served.report()) == {1: "champion", 2: "challenger"}
    served.promote(2)
    served.close()
    served = start()
    assert (served.number, served.service.runtime.h) == (2, H + 1)
    wait(served)
    served.roll_back(1)
    assert served.service.runtime.h == H
    served.close()
    other = Forecaster.from_pretrained("nano", h=H + 2, freq="D")
    load["model"] = lambda: other
    with pytest.raises(StorageError, match=r"belongs to another model .* aru rollout start"):
        start()
