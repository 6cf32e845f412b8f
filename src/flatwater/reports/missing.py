"""What a page says where a file of the run is not there."""

from flatwater.reports.markup import Html, paragraph, tag
from flatwater.reports.records import RunRecords


def missing(what: str, file: str, run: RunRecords, when: str = "at the end of a run") -> Html:
    """Why there is nothing to show."""
    states = {"training": "This run is in training.", "stopped": "This run was stopped; it can be resumed."}
    why = states.get(run.state, "This run was trained by a version that wrote none, or the file was removed.")
    return paragraph([f"There is no {what} here: ", tag("code", file), f" is written {when}. {why}"], class_="missing")
