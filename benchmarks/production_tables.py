"""Tables of what runs in production: the service, PostgreSQL, Spark."""

from __future__ import annotations

from benchmarks.aims import postgres_goals, spark_goals
from benchmarks.tables import machine, read, source, table


def service() -> str:
    found = read("service.json")
    rows = [
        (
            r["clients"],
            "on" if r["monitor"] else "off",
            f"{r['updates_per_second']:,}",
            f"{r['updates_per_cpu_second']:,}",
            r["p50_ms"],
            r["p99_ms"],
        )
        for r in found["single"]
    ]
    head = ["clients", "monitoring", "updates/s", "per CPU second", "p50 ms", "p99 ms"]
    return f"{table(head, rows)}\n\n{machine(found)}{source('service.json', found)}"


def postgres() -> str:
    found = read("postgres.json")
    bulk = [
        (
            f"{r['series']:,}",
            f"{r['sqlite_per_second']:,}",
            f"{r['postgres_per_second']:,}",
            r["ratio"],
            f"{r['sqlite_cpu_us']:.0f}",
            f"{r['postgres_cpu_us']:.0f} + {r['server_cpu_us']:.0f}",
        )
        for r in found["bulk"]
    ]
    head = ["series", "SQLite/s", "PostgreSQL/s", "ratio", "SQLite, CPU", "PostgreSQL, CPU, client + server"]
    single = [
        (
            r["clients"],
            r["store"],
            f"{r['per_second']:,.0f}",
            r["p50_ms"],
            f"{r['service_cpu_us']:,.0f} + {r['server_cpu_us']:,.0f} + {r['client_cpu_us']:,.0f}",
            f"{min(r['clients'], 2 if '2' in r['store'] else 1) * 1e6 / r['service_cpu_us']:,.0f}",
        )
        for r in found["single"]
    ]
    posts = [
        "clients",
        "states in",
        "posts/s",
        "p50 ms",
        "CPU: service + server + client",
        "bound by the service's CPU",
    ]
    text = "Posts of one observation, each client waiting for its answer; microseconds of CPU for each:"
    origin = machine(found) + source("postgres.json", found)
    return f"{table(head, bulk)}\n\n{text}\n\n{table(posts, single)}\n\n{origin}"


def postgres_aims() -> str:
    return table(["aim", "found", ""], postgres_goals(read("postgres.json")))


def spark_aims() -> str:
    return table(["aim", "found", ""], spark_goals(read("spark.json")))


def spark() -> str:
    found = read("spark.json")
    rows = [
        (
            f"{r['series']:,}",
            r["shards"],
            f"{r['dense']['events_per_second']:,} events/s",
            f"{r['dense']['cpu_us_per_event']} µs",
            f"{r['doubled']['events_per_second']:,} events/s",
            f"{r['sparse']['rows_per_batch']:,} events in {r['sparse']['seconds_per_batch']:.1f} s",
            f"{r['dense']['write_amplification']}, {r['sparse']['write_amplification']}",
        )
        for r in found["streams"]
    ]
    dense, sparse = "dense: every series a batch", "sparse: 1 series in 100 a batch"
    head = ["series", "shards", dense, "CPU per event", "twice", sparse, "written per changed record: dense, sparse"]
    return f"{table(head, rows)}\n\n{machine(found)}{source('spark.json', found)}"


def layouts() -> str:
    found = read("spark.json")
    rows = [
        (
            r["layout"],
            f"{r['state_us_per_event'] / 1000:.2f} ms",
            f"{r['dense']['events_per_second']:,} events/s",
            f"{r['dense']['cpu_us_per_event']} µs",
            f"{r['sparse']['seconds_per_batch']:.1f} s",
            f"{r['sparse']['write_amplification']:.1f}",
        )
        for r in found["layouts"]
    ]
    batch = found["layouts"][0]["sparse"]["rows_per_batch"]
    head = ["layout", "reading and writing an event", "dense", "CPU per event"]
    return table([*head, f"sparse batch of {batch}", "written per changed record, sparse"], rows)


def sizing() -> str:
    found = read("sizing.json")
    rows = [
        (
            f"{r['series']:,}",
            {"sqlite": "SQLite", "postgres": "PostgreSQL"}[r["store"]],
            f"{r['rows_per_second']:,}",
            f"{r['memory_mb']:,} ({r['idle_memory_mb']:,})",
            f"{r['store_bytes_per_series'] / 1000:.1f}",
            f"{r['monitor_bytes_per_series'] / 1000:.1f}" if r["monitor_bytes_per_series"] else "",
            f"{r['kept_bytes_per_row']:.0f}",
            f"{r['store_mb']:,}",
        )
        for r in found["sizing"]
    ]
    each = ["kB a series: states", "monitor", "bytes a kept row", "MB in all, 24 rows kept"]
    head = ["series", "store", "rows/s in bulk", "memory, MB (at first)", *each]
    return f"{table(head, rows)}\n\n{machine(found)}{source('sizing.json', found)}"


def soak() -> str:
    found = read("soak.json")
    r = found["soak"]
    memory = r["memory_mb"]
    facts = {
        "capacity, requests/s": f"{r['capacity_per_second']:,}",
        "sent, requests/s": f"{r['sent_per_second']:,} for {r['minutes']:g} minutes",
        "failed": f"{r['failed']:,} of {r['requests']:,}",
        "p50, p90, p99, longest, ms": ", ".join(
            f"{r[name]:,}" for name in ("p50_ms", "p90_ms", "p99_ms", "longest_ms")
        ),
        "cores in use": r["cpu"],
        "memory, MB": f"{memory['first_quarter']:,} in the first quarter, {memory['last_quarter']:,} in the last "
        f"({100 * r['growth']:+.1f} %)",
    }
    return f"{table(['', ''], facts.items())}\n\n{machine(found)}{source('soak.json', found)}"
