"""The report of a published folder: one self-contained page, made from the manifest and the released counts alone."""

import re
from collections.abc import Sequence
from html import escape

from storage.releases.register import CheckResult
from storage.releases.terms import ADJUSTED, FIXED_TOTAL
from tasks.format.manifest import Manifest
from tasks.report.charts import (
    areas_picture,
    cells_picture,
    histograms_picture,
    is_written,
    matrix_picture,
    noise_picture,
    series_picture,
    sizes_picture,
)
from tasks.report.facts import Facts
from tasks.report.frame import page
from tasks.report.levels import deviations_of, twice_the_noise
from tasks.report.readme.page import revision
from tasks.report.readme.protected import exact_levels, protection
from tasks.report.readme.reading import reading
from tasks.report.sections.maps import MAP_STYLE, maps_section
from tasks.report.sections.numbers import (
    of_areas,
    of_cells,
    of_histograms,
    of_matrix,
    of_noise,
    of_series,
    of_sizes,
)
from tasks.report.tables import (
    Checks,
    cells_called,
    counted_in,
    file_table,
    is_of_trips,
    largest_counts,
    noise_table,
    signal_sentence,
    view_table,
)
from tasks.words.epsilon import epsilon_in_words, format_right_guess
from tasks.words.levels import in_short, place
from tasks.words.numbers import (
    format_bound,
    format_cells,
    format_percent,
    format_probability,
    format_rounded,
    rounded_up,
)
from tasks.words.readers import about, axes_called, title_of

_STYLE = """h1 { margin: .2rem 0 }
h2 { margin: 2.5rem 0 .5rem; border-bottom: 2px solid #1b4965; color: #1b4965; padding-bottom: .2rem }
h3 { margin: 1rem 0 .2rem; font-size: 1.05rem }
code { font-size: .9em; overflow-wrap: anywhere }
.kind { margin: 0; color: #1b4965; font-weight: 600; letter-spacing: .02em }
.id { margin: 0 0 1rem; color: #444; overflow-wrap: anywhere }
.lead { font-size: 1.15rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1.5rem 0; padding: 0 }
.cards > div { border: 1px solid #b8c4cc; border-top: 4px solid #1b4965; border-radius: 4px; padding: .6rem .8rem }
.cards dt { font-size: .85rem; color: #444 }
.cards dd { margin: 0; font-size: .85rem; color: #444 }
.cards dd:first-of-type { font-size: 1.5rem; font-weight: 650; line-height: 1.3; color: #1a1a1a }
.notice > p { margin: 0 }
.notice, .above, .drowned { border-left: 6px solid #1b4965; background: #eef3f6; padding: .7rem 1rem; margin: 1rem 0 }
.notice, .drowned { border-left: 6px double #8a3b12; background: #faf3ee }
.texts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 2.5rem }
.texts section { min-width: 0 }
.texts h2 { margin-top: 1.5rem }
.texts ul { padding-left: 1.2rem }
.texts li { margin-bottom: .4rem }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem }
.pictures figure, .matrix { margin: 1rem 0; min-width: 0 }
.pictures h3 { margin: 0 }
figcaption { font-size: .875rem }
th { vertical-align: bottom; white-space: normal }
summary h2 { display: inline }
.numbers { font-size: .875rem }
.numbers summary { font-weight: 400; color: #444 }
td.line { text-align: left; background: #faf3ee; border-top: 2px dashed #8a3b12; font-weight: 600 }
.largest :is(td, th):not(:nth-last-child(-n+3)) { text-align: left }
.tables td:nth-child(-n+3), .tables th:nth-child(-n+3), .noise td:nth-child(2), .noise th:nth-child(2) { text-align: left }
.tables td:nth-child(3) { white-space: normal; min-width: 13rem }
@media screen {
  .noise { font-size: .8125rem }
  .noise :is(td, th) { padding: .2rem .45rem; white-space: normal }
}
.bare td:not(:last-child), .bare th:not(:last-child) { text-align: left }
.largest { font-size: .8125rem }
.largest :is(td, th):not(:nth-last-child(-n+3)) { white-space: normal }
.largest small { color: #555; white-space: nowrap }
@media screen and (max-width: 40rem) {
  .largest { font-size: .75rem }
  .largest th, .largest td { padding: .2rem .25rem }
}
@media screen and (min-width: 60rem) {
  .beside { display: grid; grid-template-columns: minmax(25rem, 1fr) auto; gap: 0 2rem }
  .beside > * { min-width: 0 }
  .beside .matrix { margin: 1rem 0 }
  .beside p, .beside h3 { width: 0; min-width: 100% }
}
footer { margin-top: 3rem; color: #444; font-size: .875rem; border-top: 1px solid #ddd }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark }
  body { background: #14171b; color: #e8e8e8 }
  h2, .kind { color: #9ccbe6; border-color: #4f87a6 }
  a { color: #8ab4f8 }
  .id, .cards dt, .cards dd, .numbers summary, .largest small, figcaption, footer { color: #b4bac4 }
  .cards > div { border-color: #4a4f57; border-top-color: #4f87a6 }
  .cards dd:first-of-type { color: #fff }
  .notice, .above { background: #1b2730; border-color: #4f87a6 }
  .drowned { background: #2c221a; border-color: #d98a5b }
  td.line { background: #2c221a; border-top-color: #d98a5b }
  th, td { border-color: #3a3f46 }
  footer { border-color: #3a3f46 }
  .scroll { background: none }
  .map { background: #fff; border-radius: 4px }  /* maps keep their colours, on white */
}
@page { margin: 14mm }
@media print {
  body { font-size: 10.5pt; padding: 0 }
  .cards > div, .notice, .above, .drowned { print-color-adjust: exact; break-inside: avoid }
  .pictures { grid-template-columns: 1fr 1fr }
  .texts { display: block }
  .scroll { overflow: visible }
  table { font-size: 7.5pt; break-inside: auto }
  .largest { font-size: 8pt }
  .tables td:nth-last-child(2) { white-space: nowrap }
  tr { break-inside: avoid }
  h2, h3 { break-after: avoid }
  th, td { padding: .1rem .3rem; white-space: normal }
  .tables td:nth-child(2) code { overflow-wrap: normal }
  .cards { grid-template-columns: repeat(5, 1fr) }
  .cards dd:first-of-type { font-size: 1.2rem }
}
"""

_BODY = """<p class="kind">Counts with differential privacy</p>
<h1>{name}</h1>
<p class="id">{id}</p>
{supersedes}
{about}<p class="lead">{sentence} <a href="explorer.html">Look numbers up in the explorer.</a></p>
{cards}
{line}
<div class="texts">
<section><h2>What is protected</h2>
{protection}
<h3>What is not protected, because it is published exactly</h3>
{unprotected}</section>
<section><h2>How wrong can a number be?</h2>
{reading}</section>
</div>
{maps}
{series}
<h2>Level by level</h2>
<div class="pictures">
{pictures}
</div>
<h2>Counts to look at first</h2>
<div{beside}>
{matrix}
{largest}
</div>
<h2>The tables</h2>
{tables}
{views}
{margins}
{noise}
<details class="details"><summary><h2>Details</h2></summary>
<p>For those who make releases.</p>
<div class="pictures">
{details}
</div>
</details>
<footer><p>Trellis {version} made this release with the mechanism <code>{mechanism}</code>. Everything on this page comes from the
tables in the same folder and from <code>manifest.json</code>; the page needs no network. <code>trellis verify</code> checks the
whole folder and needs nothing else.</p></footer>"""


def report(manifest: Manifest, facts: Facts, checks: Checks, how_counted: str = ADJUSTED, formulas: str = "") -> str:
    """Return the page.

    Args:
        manifest: the release's manifest.
        facts: what the report shows of its released counts.
        checks: the checks recorded before it was published.
        how_counted: as in `readme`.
        formulas: as in `readme`.
    """
    name = title_of(manifest.spec, manifest.id)
    body = _BODY.format(
        name=escape(name),
        id=escape(manifest.id),
        supersedes=f'<div class="notice">{_as_html(text)}</div>' if (text := revision(manifest)) else "",
        about=f'<p class="about">{escape(text)}</p>\n' if (text := about(manifest.spec)) else "",
        sentence=_sentence(manifest, facts),
        cards=_cards(manifest, facts),
        line=_noise_line(manifest, facts),
        protection=_as_html(protection(manifest)) + _in_plain_words(manifest),
        unprotected=_list([escape(statement) for statement in manifest.unprotected] or ["nothing"]),
        reading=_as_html(reading(manifest, how_counted, formulas)),
        maps=maps_section(
            facts.maps,
            facts.shapes,
            facts.names,
            manifest.spec,
            counted_in(manifest),
            manifest.intervals.confidence,
        ),
        pictures=_figures(_pictures(manifest, facts)),
        series=_histograms(facts, manifest) if facts.histograms else _series(facts, manifest),
        matrix=_matrix(facts, manifest) if facts.matrix else "",
        largest=largest_counts(manifest, facts),
        beside=' class="beside"' if _is_small(facts) else "",
        tables=file_table(manifest, facts, checks) + signal_sentence(manifest),
        noise=noise_table(manifest, facts),
        views=view_table(manifest),
        margins=_as_html(manifest.warning_of_margins),
        details=_figures(_details(manifest, facts)),
        version=escape(manifest.versions.get("trellis", "")),
        mechanism=escape(manifest.mechanism),
    )
    return page(f"{name}: report", body, _STYLE + MAP_STYLE)


def passed_checks(checks: Sequence[CheckResult]) -> dict[int, tuple[int, int]]:
    """Return, per level, how many of its recorded checks passed, and how many there were."""
    found: dict[int, tuple[int, int]] = {}
    for check in checks:
        passed, of = found.get(check.level, (0, 0))
        found[check.level] = (passed + check.passed, of + 1)
    return found


def _sentence(manifest: Manifest, facts: Facts) -> str:
    """Return in a few sentences what was released."""
    axes = in_short(list(manifest.levels[0].axes)) if not is_of_trips(manifest) else "origin and destination"
    finest, rows = manifest.levels[-1], facts.levels[-1].rows
    many = len(manifest.levels)
    return (
        f"<b>{facts.total:,} {counted_in(manifest)}</b> counted by {escape(axes)}, in {many} tables from the total down to the finest"
        f" level ({escape(place(axes_called(manifest.spec, finest.axes))) or 'everything'}), where {rows:,} {cells_called(manifest)} have a count. Noise was added"
        f" on purpose, to limit what the counts reveal about {escape(manifest.privacy.unit)}{_limit(manifest)}. The counts add up at"
        " every level."
    )


def _limit(manifest: Manifest) -> str:
    """Return what the guarantee limits, with its figure, or what it does not cover; to follow what is protected."""
    if exact_levels(manifest):
        return ", but for what is published exactly"
    privacy = manifest.privacy
    return (
        f": with them, somebody guesses right between two equally likely possibilities at most"
        f" {format_right_guess(privacy.epsilon, privacy.delta)}, instead of 50"
    )


def _cards(manifest: Manifest, facts: Facts) -> str:
    privacy, finest, leaf = manifest.privacy, facts.finest_above_noise, facts.levels[-1]
    last = len(manifest.levels) - 1
    possible = leaf.possible_cells
    of_possible = "the number possible is unknown" if possible is None else f"of {format_cells(possible)} possible"
    delta = f"δ = {privacy.delta:g} ({format_probability(privacy.delta)})"
    cards = [
        (counted_in(manifest).capitalize(), f"{facts.total:,}", _how_total(manifest, facts)),
        ("Privacy", f"ε = {rounded_up(privacy.epsilon, 4)}", f"and {delta}, for {escape(privacy.unit)}"),
        (f"{cells_called(manifest).capitalize()} at level {last}", f"{leaf.rows:,}", of_possible),
    ]
    if threshold := manifest.levels[-1].threshold:
        cards.append(("Smallest count kept", f"{threshold:,}", "smaller ones are missing, from sums too"))
    elif facts.is_noise_compared:
        half = "half of the rows or more are" if finest == last else "below, more than half of the rows are not"
        over = f"{half} estimated to count over {twice_the_noise(manifest)[1]}"
        cards.append(("Above the noise", _down_to(finest, last), over))
    if error := _error_card(manifest, facts):
        cards.append(error)
    inside = "".join(f"<div><dt>{head}</dt><dd>{value}</dd><dd>{more}</dd></div>" for head, value, more in cards)
    return f'<dl class="cards">{inside}</dl>'


def _how_total(manifest: Manifest, facts: Facts) -> str:
    """Return how far off the total can be, by what is known of it whatever it was settled from."""
    total, percent = manifest.levels[0], format_percent(manifest.intervals.confidence)
    if manifest.has_groups or not (total.sigma or total.summed):
        return "exact, because it is public"
    if total.deviations:
        return f"with a standard deviation of {deviations_of(total)}"
    how = "the sum of noisy counts" if FIXED_TOTAL in manifest.waived else "with noise"
    return f"{how}; {percent} interval: {ends[0]:,} to {ends[1]:,}" if (ends := facts.total_ends) else how


def _down_to(finest: int | None, last: int) -> str:
    if finest is None:
        return "no level"
    return "every level" if finest == last else f"to level {finest}"


def _error_card(manifest: Manifest, facts: Facts) -> tuple[str, str, str] | None:
    """Return how far off a count can be, at the level that is best to use."""
    level = facts.largest_level
    entry, known = manifest.levels[level], facts.levels[level]
    if known.half_width is not None and entry.sigma:
        missed = format_percent(1 - manifest.intervals.confidence)
        is_of_cells = entry.intervals is not None and entry.intervals.promise == "cells"
        promise = (
            f"it misses a cell that is fixed beforehand with {missed} probability"
            if is_of_cells
            else f"at most {missed} of the rows are expected to be missed"
        )
        return (
            f"Interval at level {level}",
            f"± {format_rounded(known.half_width, 2)}",
            f"{counted_in(manifest)} on average; {promise}",
        )
    if entry.bound and entry.sigma:
        bound = format_bound(entry.sigma, entry.bound, summed=entry.summed)
        promise = f"{counted_in(manifest)} at most for all counts at once, with 95% probability"
        return f"Error at level {level}", bound, promise
    return None


def _noise_line(manifest: Manifest, facts: Facts) -> str:
    """Return the level below which most counts are small beside their noise, as the noisy counts themselves show it."""
    finest, last = facts.finest_above_noise, manifest.levels[-1]
    if facts.is_unlisted:
        return (
            f'<p class="above">No codebook lists {escape(in_short(manifest.unlisted))}, so the mean count is unknown.'
            f" Only counts that reached the threshold of {last.threshold:,} are published.</p>"
        )
    if last.threshold:
        spread = (
            f"the mean count ({facts.total:,} {counted_in(manifest)} spread over all possible {cells_called(manifest)})"
        )
        typical = f"{spread} is {format_rounded(facts.mean_count(last.level) or 0)}, and only counts of {last.threshold:,} or more are kept"
        if finest is None:
            return (
                f'<p class="drowned"><b>Most {cells_called(manifest)} are left out, so all sums are too small.</b> At the finest'
                f" level, {typical}.</p>"
            )
        return f'<p class="above"><b>A count of the mean size is published.</b> At the finest level, {typical}.</p>'
    if not facts.is_noise_compared:
        return ""
    rule = f"a true count of more than {twice_the_noise(manifest)[1]}, by an estimate from the noisy counts"
    if finest == last.level:
        return f'<p class="above"><b>At every level, most counts are large beside their noise.</b> Half of the rows or more have {rule}.</p>'
    if finest is None:
        return (
            '<p class="drowned"><b>Below the total, most counts are small beside their noise.</b> There, fewer than half of the rows have'
            f" {rule}.</p>"
        )
    from_ = manifest.levels[finest + 1]
    records = from_.above_noise.records if from_.above_noise else 0.0
    return (
        f'<p class="drowned"><b>Below level {finest} ({escape(place(axes_called(manifest.spec, manifest.levels[finest].axes)))}), most counts are small beside their noise.</b>'
        f" Down to level {finest}, half of the rows or more have {rule}. At level {from_.level}"
        f" ({escape(place(axes_called(manifest.spec, from_.axes)))}) fewer have; they hold about {format_percent(round(records, 2))} of its {counted_in(manifest)}. You can"
        " still use large counts there if you keep their errors in mind, but not small ones.</p>"
    )


def _in_plain_words(manifest: Manifest) -> str:
    """Return what ε and δ mean to one unit."""
    privacy = manifest.privacy
    told = epsilon_in_words(privacy.epsilon, privacy.delta, privacy.unit, privacy.neighbours)
    return (
        f"<p>In plain words: {escape(' '.join(told))} The smaller ε is, the less the release reveals about"
        f" {escape(privacy.unit)}.{_where_it_holds(manifest)}</p>"
    )


def _where_it_holds(manifest: Manifest) -> str:
    """Return between which tables the guarantee holds, where levels that a unit could change are published exactly."""
    if not exact_levels(manifest):
        return ""
    return (
        " This holds only between tables that agree on every count that is published exactly. The release does not protect at"
        " all in which of those cells a unit is."
    )


def _histograms(facts: Facts, manifest: Manifest) -> str:
    """Return the section of the numbers of groups by size, level by level."""
    figures = []
    for of in facts.histograms:
        picture = histograms_picture(of, manifest.intervals.confidence, facts.names)
        regions = (
            "everything"
            if of.level == 1
            else f"{len(of.regions):,} of {of.there:,} regions, those with the most groups"
        )
        text = f"Level {of.level}: {regions}. A bar is the number of groups of a size, and the line its interval."
        numbers = of_histograms(of, facts.names)
        figures.append(f'<figure><div class="scroll">{picture}</div><figcaption>{text}</figcaption>{numbers}</figure>')
    return "<h2>Groups by size</h2>\n" + "\n".join(figures)


def _series(facts: Facts, manifest: Manifest) -> str:
    """Return the sections of the counts along ordered axes."""
    sections = []
    for series in facts.series:
        picture = series_picture(series, manifest.intervals.confidence, facts.names)
        text = f"Counts of {escape(series.source)} in the order of the axis, and the interval of each row."
        figure = f'<figure><div class="scroll">{picture}</div><figcaption>{text}</figcaption>{of_series(series, facts.names)}</figure>'
        sections.append(f"<h2>Along {escape(series.axis)}</h2>\n{figure}")
    return "\n".join(sections)


_Picture = tuple[str, str, str, str]  # what stands above a picture, the picture, what stands below, and its numbers


def _figures(pictures: Sequence[_Picture]) -> str:
    return "\n".join(
        f"<figure><h3>{title}</h3>{svg}<figcaption>{caption}</figcaption>{numbers}</figure>"
        for title, svg, caption, numbers in pictures
        if svg
    )


def _pictures(manifest: Manifest, facts: Facts) -> list[_Picture]:
    """Return the pictures of the levels that say how far a count may be trusted."""
    cells = cells_called(manifest)
    interval = (
        f" Half of the interval: half the width of the {format_percent(manifest.intervals.confidence)} interval, averaged over"
        " the rows."
        if any(level.half_width is not None for level in facts.levels)
        else ""
    )
    bounded = any(entry.bound for entry in manifest.levels)
    bound = (
        " Error bound: with 95% probability, every count at the level is within it of the true count."
        if bounded
        else ""
    )
    shaded = (
        ""
        if not facts.is_noise_compared or facts.finest_above_noise == manifest.levels[-1].level
        else " Hatched: levels where more than half of the rows are not above the noise."
    )
    return [
        (
            "Noise beside mean counts",
            noise_picture(manifest.levels, facts, counted_in(manifest)),
            f"{counted_in(manifest).capitalize()}, on a logarithmic scale. Mean count: the total over all possible {cells}; most cells count less.{interval}{bound}{shaded}",
            of_noise(manifest.levels, facts),
        ),
        (
            "Sizes of the released counts",
            sizes_picture(facts),
            "The share of each level's rows that have a count of each size; darker means larger.",
            of_sizes(facts),
        ),
    ]


def _details(manifest: Manifest, facts: Facts) -> list[_Picture]:
    """Return the pictures that say how a release was made rather than what can be read off it."""
    cells = cells_called(manifest)
    return [
        (
            f"{cells.capitalize()} that are released",
            cells_picture(manifest.levels, facts, cells),
            f"On a logarithmic scale. A missing row {manifest.missing_row}.",
            of_cells(manifest.levels, facts, cells),
        ),
        (
            "Areas with a released count" if is_of_trips(manifest) else "Values with a released count",
            areas_picture(facts),
            "Of those in the codebook, the share that has at least one released count.",
            of_areas(facts),
        ),
    ]


def _is_small(facts: Facts) -> bool:
    """Return whether the matrix and the largest counts fit side by side on a desk; names need more room than codes."""
    return (
        facts.matrix is not None and is_written(facts.matrix) and 0 < len(facts.largest_axes) <= 2 and not facts.names
    )


def _matrix(facts: Facts, manifest: Manifest) -> str:
    matrix, counted = facts.matrix, counted_in(manifest)
    if matrix is None or not matrix.counts.size:
        return ""
    axes = " and ".join(escape(axis) for axis in matrix.axes)
    cut = [
        f"the {len(codes)} largest of {left:,} areas of {escape(axis)}"
        for axis, codes, left in zip(matrix.axes, matrix.codes, matrix.left, strict=True)
        if left > len(codes)
    ]
    shown = f" Shown: {' and '.join(cut)}." if cut else ""
    below = ", or is below zero" if (matrix.counts < 0).any() else ""
    white = f"a white cell has no row: it {manifest.missing_row}{below}"
    noise = " Hatched counts may be noise: their intervals reach 0." if matrix.may_be_zero.any() else ""
    return (
        f'<figure class="matrix"><h3>By {axes} (level {matrix.level})</h3>'
        f'<div class="scroll">{matrix_picture(matrix, facts.names, counted)}</div><figcaption>Released counts, in {counted}. Darker means more,'
        f" on a logarithmic scale; {white}.{noise}{shown}</figcaption>{of_matrix(matrix, facts.names)}</figure>"
    )


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _as_html(markdown: str) -> str:
    """Return paragraphs and lists of README.md as HTML; it uses only emphasis, code and dashes."""
    parts = []
    for block in markdown.split("\n\n"):
        if block.startswith("- "):
            parts.append(_list([_inline(item) for item in block.removeprefix("- ").split("\n- ")]))
        elif block:
            parts.append(f"<p>{_inline(block)}</p>")
    return "\n".join(parts)


def _inline(markdown: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(markdown), flags=re.DOTALL)
    text = re.sub(r"(?<![\w*])\*(\w[^*]*)\*(?![\w*])", r"<em>\1</em>", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
