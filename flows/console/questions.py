"""What a person sees of the answer to a question: the count, its interval, and how both were put together."""

from typing import Any

from rich.markup import escape

from flows.console.terminal import tell


def show_query(answer: dict[str, Any]) -> None:
    """Draw an answer, in four lines or five."""
    asked = [f"{axis} {' '.join(area['path'])} ({area['level']})" for axis, area in answer["where"].items() if area]
    tell(f"[bold]{escape(', '.join(asked) or 'everything')}[/]")
    tell(f"count: [bold]{answer['count']:,}[/]")
    if answer["low"] is None:
        tell("interval: none can be stated")
    elif answer["exact"]:
        tell("interval: none, it is published exactly")
    else:
        held = "together with all other questions, " if answer["simultaneous"] else ""
        tell(
            f"interval: {answer['low']:,} to {answer['high']:,}; {held}with {100 * answer['confidence']:g} %, over all noise,"
            " the truth is inside"
        )
    tell(f"how: {escape(answer['how'])}")
