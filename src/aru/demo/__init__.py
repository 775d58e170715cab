"""`aru demo`: a year of New York departures, streamed day by day, with a table and a report of what adapting buys."""

from aru.demo.replay import run as run

__all__ = ["run"]
