"""`aru demo`: a year of New York departures, streamed day by day, with a report of what adaptation gains."""

from aru.demo.replay import run as run

__all__ = ["run"]
