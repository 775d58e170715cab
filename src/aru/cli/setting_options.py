"""One option of `aru fit` per setting, generated from the settings classes.

Name, type, default and help come from `aru.settings`. Only short spellings of some names, examples of JSON, and panels
of the help page are defined here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from aru.checked import documentation
from aru.cli.wording import Wording
from aru.errors import ConfigError, quoted, reword
from aru.settings import NetworkOptions, Settings, TrainingOptions, fields_by_name

SHORT = {
    "futr_exog_list": "--futr-exog",
    "hist_exog_list": "--hist-exog",
    "stat_exog_list": "--stat-exog",
    "random_seed": "--seed",
}
COVARIATES, MODEL, NETWORK, TRAINING = "Covariates", "Model", "Network", "Training"
PANELS: dict[str, str | None] = {
    "h": None,  # with the required options, above all panels
    "freq": None,
    **dict.fromkeys(("futr_exog_list", "hist_exog_list", "stat_exog_list"), COVARIATES),
    **dict.fromkeys(("max_steps", "learning_rate", "batch_size", "random_seed", "ensemble", "accelerator"), TRAINING),
}
EXAMPLES = {"search": '{"ridge": [0.1, 1]}', "trainer": '{"devices": 2}'}  # of options that take JSON
IN_HELP = Wording({"static_df": "--static FILE"})

Command = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class SettingOption:
    """The option of one setting."""

    name: str
    flag: str  # "--max-steps", or "--gate/--no-gate"
    panel: str | None
    kinds: tuple[Any, ...]  # types that the value can have
    default: Any  # dataclasses.MISSING: the option is required
    about: str

    @property
    def parameter(self) -> inspect.Parameter:
        """The option as a typer parameter. It is None if not given, so that the library or a preset has the default."""
        required = self.default is dataclasses.MISSING
        option = typer.Option(
            ... if required else None,
            self.flag,
            metavar=self._metavar,
            rich_help_panel=self.panel,
            help=self._help,
            show_default=False,
        )
        kind: Any = self._typer_kind if required else self._typer_kind | None
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)

    @property
    def plain_about(self) -> str:
        """The setting's documentation without Python syntax."""
        before, none, after = self.about.partition("None: ")  # the meaning of None, if it is the default
        text = f"{before}Default: {after}" if none and self.default is None else self.about
        return reword(text, IN_HELP).replace('"', "").replace("None", "none")

    def read(self, given: Any) -> Any:
        """The typed text as a value of the setting. `Settings` checks whether it is allowed."""
        if isinstance(given, list):
            return split(given)
        if not isinstance(given, str):
            return given
        if given.lower() == "none" and NoneType in self.kinds:
            return None
        if self._is_mapping:
            return self._object(given)
        if given in {word for kind in self.kinds if get_origin(kind) is Literal for word in get_args(kind)}:
            return given
        if self._numbers and ("," in given or str not in self.kinds):
            return self._listed(given)
        if int in self.kinds:
            with contextlib.suppress(ValueError):
                return int(given)
        return given

    @property
    def _typer_kind(self) -> Any:
        """Typer reads numbers, flags and lists of columns; any other value is text for `read`."""
        if Sequence[str] in self.kinds:
            return list[str]
        plain = [kind for kind in self.kinds if kind is not NoneType]
        return plain[0] if len(plain) == 1 and plain[0] in (bool, int, float) else str

    @property
    def _numbers(self) -> Callable[[str], Any] | None:
        """The type of numbers if the setting is a list of numbers, else None."""
        found = [get_args(kind)[0] for kind in self.kinds if get_origin(kind) is Sequence]
        return found[0] if found and found[0] in (int, float) else None

    @property
    def _is_mapping(self) -> bool:
        return any(get_origin(kind) is Mapping for kind in self.kinds)

    @property
    def _metavar(self) -> str | None:
        plain = [kind for kind in self.kinds if kind is not NoneType]
        if self._is_mapping:
            return "JSON"
        if len(plain) > 1:
            return self.flag.removeprefix("--").upper()
        if get_origin(plain[0]) is Literal:
            return "NAME"
        return {bool: None, int: "N", float: "NUMBER", str: "NAME", Sequence[str]: "COLUMNS"}.get(plain[0], "NUMBERS")

    @property
    def _help(self) -> str:
        """Help text: the documentation, how lists are typed, and the default."""
        text = self.plain_about
        if Sequence[str] in self.kinds:
            return f"{text} Separated by commas, or repeat the option."
        if self._is_mapping:
            return f"{text} A JSON object, for instance {EXAMPLES.get(self.name, '{}')}."
        if self._numbers:
            text += " Numbers are separated by commas."
        if self.default is dataclasses.MISSING or "Default: " in text:
            return text
        return f"{text} Default: {_shown(self.default)}."

    def _listed(self, text: str) -> list[Any]:
        assert self._numbers is not None
        try:
            return [self._numbers(part) for part in text.split(",")]
        except ValueError:
            raise ConfigError(f"{self.flag} takes numbers separated by commas, got {quoted(text)}") from None

    def _object(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.flag} takes a JSON object, got {quoted(text)}")
        return value


def split(items: Sequence[str]) -> list[str]:
    """A list that was given as a,b or by repeating the option."""
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def with_setting_options(command: Command) -> Command:
    """Replace the command's parameter `given`, a mapping of the settings that were typed, by an option per setting."""
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        options = [option.parameter for option in OPTIONS.values()]
        parameters += options if own.name == "given" else [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    # By **, since the signature is generated.
    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        typed = {name: arguments.pop(name) for name in OPTIONS}
        command(given={name: value for name, value in typed.items() if value is not None}, **arguments)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def read_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were typed, by name."""
    return {name: OPTIONS[name].read(value) for name, value in given.items()}


def setting(settings: Settings, name: str) -> Any:
    """The value of a setting by name, also one of `network` or `training`."""
    home = fields_by_name()[name]
    return getattr(settings if home is None else getattr(settings, home), name)


def _options(declared: type[Any], panel: str) -> dict[str, SettingOption]:
    kinds, about = get_type_hints(declared), documentation(declared)
    options = {}
    for field in dataclasses.fields(declared):
        if dataclasses.is_dataclass(kinds[field.name]):
            continue  # its fields are options of their own
        options[field.name] = SettingOption(
            field.name,
            _flag(field.name, kinds[field.name]),
            PANELS.get(field.name, panel),
            _members(kinds[field.name]),
            field.default,
            about[field.name],
        )
    return options


def _flag(name: str, kind: Any) -> str:
    words = name.replace("_", "-")
    return f"--{words}/--no-{words}" if kind is bool else SHORT.get(name, f"--{words}")


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _shown(value: Any) -> str:
    """A default as it would be typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


_ALL = {**_options(Settings, MODEL), **_options(NetworkOptions, NETWORK), **_options(TrainingOptions, TRAINING)}
_ORDER = (None, COVARIATES, MODEL, TRAINING, NETWORK)  # of the panels on the help page
OPTIONS: Mapping[str, SettingOption] = dict(sorted(_ALL.items(), key=lambda item: _ORDER.index(item[1].panel)))
