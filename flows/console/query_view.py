"""The answer to a question about areas, as a person sees it: the count, its interval, and how both were put together."""

from typing import TYPE_CHECKING

from flows.console.terminal import escaped, print_line

if TYPE_CHECKING:
    from flows.answers.query import QueryAnswer


def show_query(answer: "QueryAnswer") -> None:
    """Draw an answer, in four lines or five."""
    answer = escaped(answer)
    asked = [f"{axis} {' '.join(area.path)} ({area.level})" for axis, area in answer.where.items() if area]
    print_line(f"[bold]{', '.join(asked) or 'everything'}[/]")
    print_line(f"count: [bold]{answer.count:,}[/]")
    if answer.low is None or answer.high is None or answer.confidence is None:
        print_line("interval: none can be stated")
    elif answer.exact:
        print_line("interval: none, because the count is published exactly")
    else:
        held = (
            "it and the intervals of all other questions hold their true counts"
            if answer.simultaneous
            else "it holds the true count of a question that was fixed beforehand"
        )
        within = f"with {100 * answer.confidence:g}% probability, over all noise"
        print_line(f"interval: {answer.low:,} to {answer.high:,}; {within}, {held}")
    print_line(f"how: {answer.how}")
