"""Every attack at its small size, and the runner of the large ones."""

from __future__ import annotations

import unittest

import pytest

from tests.torture import Attack, Outcome, attacks, modules
from tests.torture.__main__ import PAGE, carry_out, page

SMALL = [
    pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.slow else [])
    for module in modules()
    for attack in attacks(module)
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("attack", SMALL)
def test_a_small_attack_fails(attack: Attack) -> None:
    outcome = Outcome(*attack.run(attack.small))
    assert outcome.attempts > 0
    assert outcome.failures == 0, outcome.note
    assert attack.large > attack.small


def test_attacks_have_names_of_their_own() -> None:
    names = [attack.name for module in modules() for attack in attacks(module)]
    assert len(names) == len(set(names)) >= 5


def test_the_runner_tells_what_came_of_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    def crash(_: int) -> Outcome:
        raise ValueError("a | b")

    def skip(_: int) -> Outcome:
        raise unittest.SkipTest("no browser")

    chosen = [Attack("held", lambda n: (n, 0, "all is well"), 1, 2), Attack("crash", crash, 1, 2)]
    chosen += [Attack("wound", lambda n: (n, 1, "one hit"), 1, 2), Attack("skip", skip, 1, 2)]
    results = [carry_out(attack, attack.large) for attack in chosen]
    assert "ValueError" in capsys.readouterr().err
    rows = [line for line in page(results).splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| held | 2 | 0 | 0 | all is well |",
        "| crash | 1 | 1 | 0 | ValueError: a / b |",
        "| wound | 2 | 1 | 0 | one hit |",
        "| skip | not run |  | 0 | no browser |",
    ]


def test_the_committed_table_has_every_attack() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    table = {cells[1].strip(): cells[3].strip() for cells in (row.split("|") for row in rows)}
    assert set(table) == {attack.name for module in modules() for attack in attacks(module)}
    assert set(table.values()) == {"0"}
