"""What PostgreSQL promises beyond the contract: writers side by side, locks in order, versions, what goes wrong."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from aru import Adapter, Forecaster, Stream
from aru.errors import ConfigError, StorageError
from aru.store import About, open_existing, open_store
from aru.store.address import name_of, read_address
from tests.making import make
from tests.postgres import ADMIN, USER, Server, new_url
from tests.shops import BASE, TRAINED, both

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'aru-forecast[postgres]'")

from aru.store import database, postgres, postgres_transactions  # noqa: E402 - they need the driver

ROOT = Path(__file__).resolve().parents[2]
ABOUT = About(1, "f" * 32, 3, 24, [["now.last", "<i8", []]], False, True)


@pytest.fixture
def store(postgres_url: str) -> Iterator[postgres.PostgresStore]:
    """A new store."""
    with closing(postgres.PostgresStore(postgres_url)) as opened:
        yield opened


def put(store: postgres.PostgresStore, newest: int = 1, **records: bytes) -> None:
    """Write some series."""
    with store.writing(list(records)) as change:
        change.put(list(records), list(records.values()))
        change.keep_newest(newest)


def read(store: postgres.PostgresStore, *keys: str) -> list[bytes | None]:
    with store.reading() as view:
        return view.get(keys)


def waits(work: Callable[[], object], until: Callable[[], object]) -> None:
    """`work`, in a thread, is not done before `until` has been called."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not done.wait(0.3)
    until()
    thread.join(10)
    assert done.is_set()


# Writers side by side


def test_writers_of_other_series_do_not_wait(store: postgres.PostgresStore) -> None:
    put(store, a=b"1", b=b"2")
    with store.writing(["a"]) as change:
        change.put(["a"], [b"3"])
        change.keep_newest(5)
        put(store, 7, b=b"4", new=b"5")  # in a transaction of its own, within this one
        assert read(store, "a", "b", "new") == [b"1", b"4", b"5"]
    assert read(store, "a", "b", "new") == [b"3", b"4", b"5"]
    with store.reading() as view:
        assert (view.version(), view.newest()) == (3, 7)


@pytest.mark.parametrize("keys", [["a"], ["new"], ["a", "new"]])
def test_writers_of_one_series_take_turns_also_when_it_is_new(keys: list[str], store: postgres.PostgresStore) -> None:
    put(store, a=b"1")
    change = store.writing(keys)
    one = change.__enter__()
    one.put(keys, [b"first"] * len(keys))
    one.keep_newest(2)
    seen: list[list[bytes | None]] = []

    def follow() -> None:
        with store.writing(["z", *keys[::-1]]) as other:
            seen.append(other.get(keys))

    waits(follow, lambda: change.__exit__(None, None, None))
    assert seen == [[b"first"] * len(keys)]  # what was written while it waited


def test_the_whole_store_has_one_writer(store: postgres.PostgresStore) -> None:
    put(store, a=b"1")
    for first, second in ((["a"], None), (None, ["b"]), (None, None)):
        change = store.writing(first)
        change.__enter__()

        def follow(keys: list[str] | None = second) -> None:
            with store.writing(keys):
                pass

        waits(follow, lambda change=change: change.__exit__(None, None, None))  # type: ignore[misc]


def test_series_that_do_not_begin_leave_nothing_behind(store: postgres.PostgresStore) -> None:
    with store.writing(["a", "b"]) as change:
        assert change.get(["a", "b"]) == [None, None]
        assert change.keys() == []
        assert change.get([1, 2], "request") == [None, None]
        change.put(["a"], [b"1"])
        change.keep_newest(1)
        change.put([2], [b"digest"], "request")
        assert change.keys() == ["a"]
    with store.reading() as view:
        assert (view.keys(), view.keys("request")) == (["a"], [2])
    with pytest.raises(ZeroDivisionError), store.writing(["c"]):
        raise ZeroDivisionError
    with store.reading() as view:
        assert view.keys() == ["a"]


def test_a_writer_of_some_series_keeps_to_its_promise(store: postgres.PostgresStore) -> None:
    with (
        pytest.raises(RuntimeError, match="series 'b' is changed by a writer of others"),
        store.writing(["a"]) as change,
    ):
        change.put(["b"], [b"1"])
    with pytest.raises(RuntimeError, match="must tell the newest time"), store.writing(["a"]) as change:
        change.put(["a"], [b"1"])
    assert read(store, "a", "b") == [None, None]


def test_writers_of_many_series_in_any_order_never_wait_in_a_circle(store: postgres.PostgresStore) -> None:
    """Counts of series, some of them new, that share requests: every step is counted once."""
    names, rounds, writers = [f"s{i}" for i in range(30)], 25, 6
    put(store, **dict.fromkeys(names[::2], b"0"))

    def work(seed: int) -> dict[str, int]:
        chance, added = random.Random(seed), dict.fromkeys(names, 0)
        with closing(postgres.PostgresStore(f"{store.address.url}&schema={store.address.schema}")) as own:
            for _ in range(rounds):
                some = chance.sample(names, 6)
                buckets = chance.sample(range(5), 3)
                with own.writing(some) as change:
                    before = change.get(some)
                    sums = change.get(buckets, "request")
                    change.put(some, [str(int(old or b"0") + 1).encode() for old in before])
                    change.put(buckets, [str(int(old or b"0") + 1).encode() for old in sums], "request")
                    change.put([0], [b"common"], "panel")
                    change.keep_newest(seed)
                for name in some:
                    added[name] += 1
        return added

    with ThreadPoolExecutor(writers) as pool:
        futures = [pool.submit(work, seed) for seed in range(writers)]
        wait(futures, 120)
        found = [future.result() for future in futures]
    with store.reading() as view:
        counted = {name: int(value or b"0") for name, value in zip(names, view.get(names), strict=True)}
        assert sum(int(value or b"0") for value in view.get(range(5), "request")) == 3 * rounds * writers
        assert view.version() == 1 + rounds * writers
        assert view.newest() == writers - 1
    assert counted == {name: sum(one[name] for one in found) for name in names}


def test_each_of_several_writers_has_a_part_of_its_own(store: postgres.PostgresStore) -> None:
    put(store, a=b"1")
    with store.writing(["a"]) as one, store.writing(["b"]) as two:
        for change, key in ((one, "a"), (two, "b")):
            change.put([key], [b"2"])
            change.keep_newest(9 if key == "b" else 3)
    with store.reading() as view:
        assert (view.version(), view.newest()) == (3, 9)
    with store.writing() as change:  # of the whole store: may make it unknown, or lower it
        change.delete(["b"])
    with store.reading() as view:
        assert view.newest() is None
    put(store, 4, a=b"1")
    with store.reading() as view:
        assert view.newest() == 4


HOLDER = """
import sys, time
from aru.store.postgres import PostgresStore
with PostgresStore(sys.argv[1]).writing(["a"]) as change:
    change.put(["a"], [b"never"])
    change.keep_newest(9)
    print("holds", flush=True)
    time.sleep(600)
"""


def test_a_process_that_dies_holds_nothing_up(store: postgres.PostgresStore, postgres_url: str) -> None:
    put(store, a=b"1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, postgres_url], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "holds\n"
    began = time.monotonic()

    def kill() -> None:
        child.send_signal(signal.SIGKILL)
        child.communicate()

    waits(lambda: put(store, a=b"2"), kill)
    assert time.monotonic() - began < 5
    assert read(store, "a") == [b"2"]


def test_a_writer_that_never_gets_its_turn_says_so(
    postgres_url: str, store: postgres.PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database.TIMEOUTS, "lock_timeout", "200ms")
    with closing(postgres.PostgresStore(postgres_url)) as other, store.writing(["a"]):
        with pytest.raises(StorageError, match=r"was busy for 60 s with other writers\. Try again\."):
            put(other, a=b"1")
        put(other, b=b"1")  # and goes on working


def test_sessions_are_told_to_end_when_their_process_hangs(store: postgres.PostgresStore) -> None:
    """What a server without these would hold for hours; and changes are on disk when they are acknowledged."""
    with closing(database.connect(store.address)) as session:
        told = dict(session.execute("SELECT name, setting FROM pg_settings").fetchall())
    assert told["idle_in_transaction_session_timeout"] == "300000"
    assert told["client_connection_check_interval"] == "5000"
    assert told["lock_timeout"] == "60000"
    assert told["synchronous_commit"] == "on"


def test_a_server_that_was_started_again_is_found_again(store: postgres.PostgresStore, postgres_server: Server) -> None:
    put(store, a=b"1")
    postgres_server.stop()
    try:
        with pytest.raises(StorageError, match=r"cannot be reached|cannot do that now"):
            read(store, "a")
    finally:
        postgres_server.start()
    put(store, b=b"2")
    postgres_server.kill()
    postgres_server.start()
    assert read(store, "a", "b") == [b"1", b"2"]  # in a connection of its own, without an error in between


def test_a_forked_process_gets_connections_of_its_own(
    store: postgres.PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, a=b"1")
    parents = list(store._idle)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        assert read(store, "a") == [b"1"]
        assert not set(map(id, parents)) & set(map(id, store._idle))
    store.close()
    for connection in [*parents, *store._parents]:
        connection.close()


def test_a_view_is_for_reading(store: postgres.PostgresStore) -> None:
    put(store, a=b"1")
    with store.reading() as view:
        for attempt in (
            lambda: view.put(["a"], [b"2"]),
            lambda: view.delete(["a"]),
            lambda: view.describe(ABOUT),
            lambda: view.keep_newest(1),
        ):
            with pytest.raises(StorageError, match="for reading"):
                attempt()


def test_many_changes_are_sent_before_the_end_and_undone_with_it(
    store: postgres.PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_transactions, "FLUSHED", 100)
    names = [f"s{i:03}" for i in range(500)]

    def fill(fail: bool) -> None:
        with store.writing() as change:
            for name in names:
                change.put([name], [b"1" * 30])
            assert change.keys() == names
            assert change.get(names[::-1]) == [b"1" * 30] * 500
            change.delete(names[:10])
            assert change.get(names[8:12]) == [None, None, b"1" * 30, b"1" * 30]
            if fail:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill(True)
    with store.reading() as view:
        assert view.keys() == []
    fill(False)
    with store.reading() as view:
        assert view.keys() == names[10:]


# Versions of the tables


def test_tables_of_an_older_version_are_brought_up_to_date(postgres_url: str) -> None:
    address = read_address(postgres_url)
    with closing(database.connect(address)) as session:
        session.execute(f"CREATE SCHEMA {address.schema}")
        session.execute("CREATE TABLE meta (version integer NOT NULL)")
        session.execute("INSERT INTO meta VALUES (1)")
        session.execute(database.STEPS[0], prepare=False)
        session.execute("INSERT INTO series VALUES (%b, %b)", [b"sold", b"kept"])
    with closing(postgres.PostgresStore(postgres_url)) as store:
        assert read(store, "old") == [b"kept"]
        put(store, new=b"1")
        with store.reading() as view:
            assert view.keys() == ["new", "old"]
    with closing(database.connect(address)) as session:
        assert database.version_of(session, address) == len(database.STEPS)


def test_tables_of_a_newer_version_are_left_alone(postgres_url: str, store: postgres.PostgresStore) -> None:
    put(store, a=b"1")
    with closing(database.connect(store.address)) as session:
        session.execute("UPDATE meta SET version = 99")
    with (
        closing(postgres.PostgresStore(postgres_url)) as other,
        pytest.raises(StorageError, match=r"tables of version 99, and this version of aru knows \d\. Use the version"),
    ):
        read(other, "a")


def test_processes_that_come_at_the_same_time_create_one_store(postgres_url: str) -> None:
    def create(name: str) -> None:
        with closing(postgres.PostgresStore(postgres_url)) as store:
            put(store, **{name: b"1"})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(create, "abcdef"))
    with closing(postgres.PostgresStore(postgres_url)) as store, store.reading() as view:
        assert view.keys() == list("abcdef")


def test_a_store_does_not_begin_anew_without_its_description(store: postgres.PostgresStore) -> None:
    with store.writing() as change:
        change.describe(ABOUT)
        change.put(["a"], [b"1"])
    with closing(database.connect(store.address)) as session:
        session.execute("DELETE FROM about")
    with pytest.raises(StorageError, match="their description is lost"), store.writing() as change:
        change.about_or_new()


# What goes wrong


def failure(url: str) -> str:
    with closing(open_store(url)) as store, pytest.raises(StorageError) as caught, store.reading():
        pass
    return str(caught.value)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    message = failure(f"postgresql://me:s3cret@/shop?host={tmp_path}")
    assert f"postgresql://me@/shop?host={tmp_path} cannot be reached: " in message
    assert "Start the server or correct the address" in message
    assert "s3cret" not in message
    message = failure("postgresql://me:s3cret@127.0.0.1:1/shop")
    assert "postgresql://me@127.0.0.1:1/shop cannot be reached" in message
    assert "s3cret" not in message


def test_a_wrong_password_is_refused_and_never_shown(postgres_server: Server) -> None:
    for url in (
        postgres_server.url(USER, "locked:wr0ng"),
        postgres_server.url(USER, "locked", password="wr0ng"),
        postgres_server.url(USER, "locked"),
    ):
        message = failure(url)
        assert "refuses this user or password. Correct the address, the variable PGPASSWORD or" in message
        assert "wr0ng" not in message
    assert "does not exist. Create the database" in failure(postgres_server.url("nothing"))


def test_a_user_without_rights(postgres_server: Server) -> None:
    url = new_url(postgres_server)
    theirs = url.replace(f"{USER}@", "locked:right@", 1)
    message = failure(theirs)
    assert "does not let this user in: permission denied for database aru" in message
    assert "Grant it the rights on the schema test_" in message
    assert "right@" not in message
    with closing(postgres.PostgresStore(url)) as store:
        put(store, a=b"1")
    assert "permission denied for" in failure(theirs)


def test_an_address_that_cannot_be_read_does_not_show_its_password() -> None:
    message = failure("postgresql://me:s3%zzcret@host:port:x/shop")
    assert "cannot be" in message
    assert "cret" not in message
    for bad in ("Upper", "a-b", "a;b", ""):
        with pytest.raises(ConfigError, match="cannot be the schema of a store"):
            open_store(f"postgresql://me@host/shop?schema={bad}")


def test_the_name_of_a_store_has_no_password() -> None:
    assert name_of("state.db") == "state.db"
    assert name_of("postgres://me:a%40b@h:5/shop") == "postgresql://me@h:5/shop"
    assert name_of("postgresql://h/shop?password=x&user=me&sslmode=require") == "postgresql://h/shop?user=me"
    assert name_of("postgresql://h/shop?schema=aru") == "postgresql://h/shop"
    assert name_of("postgresql://h/shop?schema=two&x=1") == "postgresql://h/shop?schema=two"
    assert read_address("postgresql://me:p@h/shop?schema=two&x=1").url == "postgresql://me:p@h/shop?x=1"


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aru.store.postgres", None)
    with pytest.raises(StorageError, match=r"needs the package psycopg .* pip install 'aru-forecast\[postgres\]'"):
        open_store("postgresql://me@host/shop")


def test_looking_into_a_store_does_not_create_it(postgres_url: str, postgres_server: Server) -> None:
    with (
        closing(open_existing(postgres_url)) as store,
        pytest.raises(StorageError, match="holds no store"),
        store.reading(),
    ):
        pass
    with psycopg.connect(postgres_server.url(USER, ADMIN)) as session:
        schema = read_address(postgres_url).schema
        assert session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None


# The users' classes


def test_a_database_of_another_model_is_refused(postgres_url: str) -> None:
    one, other = (make(**{**BASE, "h": h}).fit(both(range(TRAINED))) for h in (2, 3))
    with Stream(one, postgres_url) as stream:
        stream.update(both([TRAINED]))
        assert stream.series()["observations"].tolist() == [TRAINED + 1] * 2
        kept = stream.predict(level=[80])
    with pytest.raises(StorageError, match=r"^postgresql://aru@/.* was written by another model \(fingerprint"):
        Stream(other, postgres_url)
    with Stream(one, postgres_url) as stream:
        assert stream.predict(level=[80]).equals(kept)


def test_streams_on_one_database_see_what_the_other_wrote(postgres_url: str) -> None:
    """Each keeps the records of its latest update at hand, and must notice that they are old."""
    model = make(**BASE).fit(both(range(TRAINED)))
    alone = Stream(model)
    with Stream(model, postgres_url) as one, Stream(model, postgres_url) as other:
        for day in range(TRAINED, TRAINED + 8):
            writer, reader = (one, other) if day % 3 else (other, one)
            for stream in (writer, alone):
                stream.update(both([day]))
            assert reader.update(both([day])).duplicates == 2
            for stream in (one, other):
                assert stream.predict(level=[80]).equals(alone.predict(level=[80]))
        assert one.forget(["a"]) == 1
        assert other.keys() == ["b"]
        assert other.update(both([40])).new_series == ["a"]


def test_processes_that_begin_a_pretrained_model_agree_on_its_types(postgres_url: str) -> None:
    """The first frame decides them, whoever gets it."""
    model = Forecaster.from_pretrained("nano", h=2, freq=1)
    frame = {"unique_id": [7] * 20, "ds": list(range(20)), "y": [float(i % 5) for i in range(20)]}
    with Stream(model, postgres_url) as one, Stream(model, postgres_url) as other:
        assert one.update(frame).new_series == [7]
        later = {"unique_id": [7, 8], "ds": [20, 20], "y": [1.5, 2.5]}
        assert other.update(later).new_series == [8]
        assert one.keys() == other.keys() == [7, 8]
        assert one.predict(ids=[8]).equals(other.predict(ids=[8]))


def test_an_adapter_keeps_its_states_there(postgres_url: str) -> None:
    rows = both(range(30))[["unique_id", "ds", "y"]]
    given = both([30])[["unique_id", "ds", "y"]].rename(columns={"y": "model"})
    one, other = Adapter(h=2, freq="D", store=postgres_url), Adapter(h=2, freq="D")
    for adapter in (one, other):
        adapter.update(rows)
        adapter.adapt(given)
    again = Adapter(h=2, freq="D", store=postgres_url)
    assert again.series().equals(other.series())
    assert again.forget(["a"]) == 1
    for adapter in (one, again):
        adapter.store.close()
