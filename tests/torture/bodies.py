"""Malformed requests to the service: every answer is a documented one, and the service stays up."""

from __future__ import annotations

import random
from collections import Counter

from aru import Stream
from aru.serve.options import Options
from tests.making import make
from tests.serve.conftest import Running
from tests.serve.test_fuzz import bodies, malformed
from tests.shops import BASE, TRAINED, both, rows
from tests.torture import Attack, Outcome


def storm(size: int) -> Outcome:
    """This many requests, one after the other."""
    running = Running(Stream(make(**BASE).fit(both(range(TRAINED)))), Options(port=0))
    rng, statuses, wrong = random.Random(1), Counter[int](), list[str]()
    good = bodies(both(range(5, 11)))
    try:
        for _ in range(size):
            path, content, body = malformed(rng, good)
            answer = running.client.post(path, content=body, headers={"content-type": content})
            statuses[answer.status_code] += 1
            documented = {200, 400, 413, 415, 422} | ({409} if path == "/v1/observations" else {404})
            told = answer.status_code == 200 or bool(answer.json()["error"]["message"])
            if answer.status_code not in documented or not told:
                wrong.append(f"{answer.status_code} to {body[:80]!r}")
        if running.post(rows("fresh", [1])).json()["applied"] != 1:
            wrong.append("a good request is refused afterwards")
    finally:
        running.stop()
    counts = ", ".join(f"{count:,} of {status}" for status, count in sorted(statuses.items()))
    return Outcome(size, len(wrong), counts + (f"; first: {wrong[0]}" if wrong else ""))


ATTACKS = [Attack("malformed bodies", storm, 150, 20_000)]
