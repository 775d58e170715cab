"""`aru rollout`: bring a new version of a model into a running service."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from aru.cli import shared_options
from aru.cli.saved_model import Beforehand, choose_model
from aru.cli.screen import Screen, new_table, screen
from aru.cli.serve_command import TOKEN, read_tokens
from aru.errors import ConfigError, StorageError, verbatim

PAUSE_SECONDS = 0.5  # between questions about a version that is built
ANSWER_SECONDS = 600.0
Url = Annotated[str, typer.Option("--url", metavar="URL", help="Address of the service.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"File with a token of scope admin, as aru serve reads it. The variable {TOKEN} can hold it instead.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", show_default="the default one", help="Name of the model in the service."),
]
VersionNumber = Annotated[
    int | None, typer.Option("--version", metavar="N", help="Refuse any other version than this.")
]
LOCAL = "http://127.0.0.1:8000"

app = typer.Typer(name="rollout", help="Bring a new version of a model into a running service.", no_args_is_help=True)


class Client:
    """Asks a service about one of its models."""

    def __init__(self, url: str, token_file: Path | None, name: str | None) -> None:
        from aru.serve.options import SCOPES

        tokens = read_tokens(token_file)
        self._url = url.rstrip("/")
        self._token = max(tokens, key=lambda token: SCOPES.index(tokens[token]), default=None)
        self._name = name or self.ask("GET", "/v1/models")["default"]

    @property
    def path(self) -> str:
        """The path of the model."""
        return f"/v1/models/{urllib.parse.quote(self._name, safe='')}"

    def ask(self, method: str, path: str, body: bytes | None = None, content: str = "application/json") -> Any:
        """The answer of the service. Its refusals are errors here, too."""
        headers = {"Content-Type": content}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            request = urllib.request.Request(self._url + path, body, headers, method=method)
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ConfigError(_reason(error)) from None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{verbatim(self._url)} does not answer ({verbatim(getattr(error, 'reason', error))})",
                "Start the service, or name its address: --url.",
            ) from error

    def report(self) -> dict[str, Any]:
        """The versions of the model."""
        found: dict[str, Any] = self.ask("GET", self.path)
        return found

    def step(self, path: str, role: str, version: int | None, **more: Any) -> dict[str, Any]:
        """Make the version that has a role the champion."""
        found = [v["version"] for v in self.report()["versions"] if v["role"] == role]
        if not found:
            raise ConfigError(f"{verbatim(self._name)} has no {role}", "See aru rollout status.")
        body = json.dumps({"version": found[0] if version is None else version, **more}).encode()
        done: dict[str, Any] = self.ask("POST", f"{self.path}/{path}", body)
        return done


def start(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", show_default=False, help="Folder of the new model.")
    ] = None,
    url: Url = LOCAL,
    token_file: TokenFile = None,
    name: Name = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it has caught up with the present version.")
    ] = True,
    pretrained: shared_options.Pretrained = None,
    h: shared_options.Horizon = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Bring in a challenger: it builds its states from the rows that the service keeps, then shadows the champion.

    It starts with the states that it was saved with, and takes in the rows that are newer. Both then forecast, and are
    scored on the same rows: see aru rollout status, or the dashboard.
    """
    with screen(as_json, debug=debug) as show:
        client = Client(url, token_file, name)
        told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
        load = choose_model(model, pretrained, "cpu", told)
        with show.working("Sending the model"):
            from aru.serve.bundles import pack, pack_folder

            loaded = load()  # which says what is wrong with it
            bundle = pack(loaded) if model is None else pack_folder(model)
            report = client.ask("PUT", client.path, bundle, "application/x-tar")
        with show.working("Building its states"):
            while wait and _challenger(report)["status"] == "building":
                time.sleep(PAUSE_SECONDS)
                report = client.report()
        _show(show, report)


def status(
    url: Url = LOCAL,
    token_file: TokenFile = None,
    name: Name = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Show the versions of a model, and how champion and shadow compare on the same rows."""
    with screen(as_json, debug=debug) as show:
        _show(show, Client(url, token_file, name).report())


def promote(
    url: Url = LOCAL,
    token_file: TokenFile = None,
    name: Name = None,
    version: VersionNumber = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it could not take some of the rows that the champion took.")
    ] = False,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Make the challenger the champion. The champion of before follows it, so that this can be taken back."""
    with screen(as_json, debug=debug) as show, show.working("Promoting"):
        _show(show, Client(url, token_file, name).step("promote", "challenger", version, force=force))


def rollback(
    url: Url = LOCAL,
    token_file: TokenFile = None,
    name: Name = None,
    version: VersionNumber = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Make the champion of before the champion again. It has taken in all rows since."""
    with screen(as_json, debug=debug) as show, show.working("Rolling back"):
        _show(show, Client(url, token_file, name).step("rollback", "former", version))


def drop(
    version: Annotated[int, typer.Argument(metavar="VERSION", show_default=False, help="Number of the version.")],
    url: Url = LOCAL,
    token_file: TokenFile = None,
    name: Name = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Remove a challenger or a former champion from the service, with its states."""
    with screen(as_json, debug=debug) as show:
        client = Client(url, token_file, name)
        _show(show, client.ask("DELETE", f"{client.path}/versions/{version}"))


for command, example in (
    (start, "aru rollout start model-2"),
    (status, "aru rollout status --json"),
    (promote, "aru rollout promote"),
    (rollback, "aru rollout rollback"),
    (drop, "aru rollout drop 2"),
):
    app.command(help=shared_options.help_of(command), epilog=f"Example: {example}")(command)


def _challenger(report: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((v for v in report["versions"] if v["role"] == "challenger"), {"status": None})


def _show(show: Screen, report: Mapping[str, Any]) -> None:
    show.result({key: value for key, value in report.items() if key != "contest"} | {"contest": report["contest"]})
    contest = report["contest"]
    compared = next((v["version"] for v in report["versions"][1:]), None)
    table = new_table("version", "role", "status", "since")
    for heading in ("behind", "refused rows", "error (ND)", "in 80 %"):
        table.add_column(heading, justify="right")
    for v in report["versions"]:
        side = "champion" if v["role"] == "champion" else "shadow" if v["version"] == compared else None
        scores = contest[side] if contest is not None and side is not None else {}
        shown: list[tuple[Any, Callable[[Any], str]]] = [
            (v["behind"], "{:,}".format),
            (v["refused_rows"], "{:,}".format),
            (scores.get("nd"), "{:.2%}".format),
            (scores.get("coverage_80"), "{:.1%}".format),
        ]
        cells = ["" if value is None else form(value) for value, form in shown]
        table.add_row(str(v["version"]), v["role"], v["status"], v["since"], *(Text(cell) for cell in cells))
    show.show(table)
    for v in report["versions"]:
        if v["refused_reason"]:
            show.say(f"Version {v['version']} could not take rows: {v['refused_reason']}")
    if contest is not None and contest["series"]:
        show.say(
            f"Compared on {contest['champion']['observations']:,} rows of {contest['series']:,} series: version "
            f"{compared} is better on {contest['series_better']:,} of them and worse on {contest['series_worse']:,}."
        )


def _reason(error: urllib.error.HTTPError) -> str:
    """What the service says about a request that it refused."""
    try:
        return verbatim(json.loads(error.read())["error"]["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError, OSError):
        return f"The service answered {error.code}"
