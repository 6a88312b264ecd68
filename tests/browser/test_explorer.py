"""The explorer of a published folder, as a reader uses it: by keyboard, by pointer, on a phone, in the dark, and on paper."""

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from flows.api import open_release, release
from tasks.pages.explorer.page import EXPLORER, explorer_page
from tasks.pages.explorer.payload import payload_text
from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder
from tests.support.ages import GRID, draw_people, people_released
from tests.support.browsing import A4, CONTRASTS, SCHEMES, VIEWPORTS, Visit
from tests.support.explored import BY_MODE, COLUMNS, DRAWN, NAMES, SPEC, TOWNS, asked, land_released
from tests.support.households import VIEWS, homes_released
from tests.support.spec import spec_in

WITHOUT_VIEWS = {"release": {"csv": False, "views": "none"}}
ROUND = {"dataset": "walked", "hierarchy": BY_MODE["hierarchy"] | {"hour": {"ordered": 12, "round": True}}}
UNBIASED = {  # of people, no two of as many, by how their zones and ages are measured
    "unbiased": {"release": {"order": ["zone", "age"]}},
    "grid": {},
    "strategies": {"mechanism": "optimal_ranges", "hierarchy": {"zone": ["n", "s"], "age": {"ordered": 10}}},
    "views": {"release": {"order": ["zone", "age"], "views": {"ages": {"age": "age"}}}},
}
FIELDS = {"origin": "area", "destination": "to"}
MILLS = [name for name in NAMES.values() if name.startswith("Mill")]
STATES = {
    "drawn": ["", "#area=county/01", "#area=town/01/0101&to=town/02/0201"],
    "bare": ["", "#area=town/01/0101"],
    "ages": ["", "#first=age", "#first=zone&second=age"],
    "homes": [""],
    "by mode": ["", "#area=county/01%7Ccounty/02&only=2.1.1.1_3.4.3.8&first=hour"],
}

# Where a town is on the map, in pixels.
SHAPE = """number => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const axis = data.axes[0].levels.find((level) => level.name === "town");
    const plane = data.shapes[axis.shape];
    const box = document.querySelector("#map svg").getBoundingClientRect();
    const scale = Math.min(box.width / plane.width, box.height / plane.height);
    return [box.x + box.width / 2 + (plane.x[number] - plane.width / 2) * scale,
            box.y + box.height / 2 + (plane.y[number] - plane.height / 2) * scale]; }"""

# A pair of towns whose number may be noise, and one whose number is clear.
PAIRS = """() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const table = data.tables.find((one) => one.rows?.level === 4), many = data.axes[1].levels[1].codes.length;
    const pick = (kind) => table.signal.findIndex((mark, cell) => mark === kind && table.count[cell] && Math.floor(cell / many) !== cell % many);
    return [0, 1].map((kind) => [Math.floor(pick(kind) / many), pick(kind) % many]); }"""

# The first card of an address: its count, its interval, its title, and its note.
ASKS = """address => { history.replaceState(null, "", address); dispatchEvent(new HashChangeEvent("hashchange"));
    return [".count", ".interval", "h3", ".note"].map((part) => document.querySelector(`.card ${part}`)?.textContent ?? ""); }"""

WIDEST = "Math.max(...[document.documentElement, ...document.querySelectorAll('#list .scroll')].map(part => part.scrollWidth))"
# What a page may not do: show a picture of another server, read its answer, and read a text as code.
TRIES = """async () => {
    const picture = new Promise((done) => { const image = new Image(); image.onload = () => done("shown");
        image.onerror = () => done("refused"); image.src = "https://example.org/a.png"; });
    const read = fetch("https://example.org/").then(() => "read", () => "refused");
    const script = document.createElement("script");  // not this one, which the browser's driver runs past the policy
    script.textContent = "setTimeout(() => { try { new Function('')(); window.told('run'); } catch { window.told('refused'); } })";
    const code = new Promise((done) => { window.told = done; });
    document.head.append(script);
    return [await picture, await read, await code]; }"""

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@dataclass
class Reader(Visit):
    """Somebody in front of an explorer."""

    def opens(self, path, state=""):
        """Open a page, at a state that its address names."""
        self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}{state}")
        self.page.wait_for_load_state("load")

    def cards(self):
        """Return the cards by title: the count, the interval, and the sentence to quote, as they stand there."""
        found = self.page.evaluate(
            "[...document.querySelectorAll('.card')].map(card => [card.querySelector('h3').textContent, "
            "...['.count', '.interval', 'q'].map(part => card.querySelector(part)?.textContent ?? '')])"
        )
        return {title: (count, interval.strip(), quote) for title, count, interval, quote in found}

    def types(self, field, text, *keys):
        """Type into a field as a hand on a keyboard does."""
        self.page.focus(f"#{field}")
        self.page.keyboard.type(text)
        self.presses(*keys)

    def presses(self, *keys):
        """Press keys."""
        for key in keys:
            self.page.keyboard.press(key)

    def all(self, selector):
        """Return what is on the page."""
        return self.page.locator(selector)

    def text(self, selector):
        """Return the text of a part of the page."""
        return self.page.locator(selector).inner_text()

    def fields(self):
        """Return what stands in both fields."""
        return [self.page.input_value(f"#{field}") for field in ("here", "other")]

    def waits_for(self, *fields):
        """Wait until the fields hold this."""
        wanted = "fields => ['here', 'other'].every((name, at) => document.getElementById(name).value === fields[at])"
        self.page.wait_for_function(wanted, arg=list(fields))


def card_of(answer):
    """Return the count and the interval of an answer as a card shows them."""
    count = f"{answer.count:,}".replace("-", "−")
    if answer.low is None or answer.exact:
        return count, ""
    return count, f"{answer.low:,} to {answer.high:,}, with 90% probability".replace("-", "−")


def address_of(**ends):
    """Return the address of areas, as it stands behind a page's."""
    return "#" + "&".join(f"{end}=town/{code[:2]}/{code}" for end, code in ends.items())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the published folders of trips with names and maps, without, and by mode and hour, of ages, and of households."""
    place = tmp_path_factory.mktemp("explored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        for name in ("ages", *UNBIASED):
            (place / name).mkdir()
        yield {
            "drawn": land_released(place / "drawn", DRAWN),
            "bare": land_released(place / "bare", {}, name="bare", dataset="bare"),
            "ages": people_released(place / "ages").folder,
            "homes": homes_released(place / "homes", dataset="homes").folder,
            "by tenure": homes_released(place / "tenure", dataset="tenure", **VIEWS).folder,
            "by mode": land_released(place / "mode", {}, **BY_MODE),
            "walked by mode": land_released(place / "walked", {}, **BY_MODE | WITHOUT_VIEWS | ROUND),
            "leaves by mode": land_released(
                place / "leaves", {}, **BY_MODE | WITHOUT_VIEWS | {"dataset": "leaves", "mechanism": "gaussian"}
            ),
            "unbiased by mode": land_released(
                place / "trips", {}, **BY_MODE | WITHOUT_VIEWS | {"dataset": "trips", "mechanism": "unbiased_tree"}
            ),
            **{
                name: people_released(
                    place / name,
                    draw_people(500 + len(name)),
                    **{"mechanism": "unbiased_tree"} | GRID | keys,
                    dataset=name,
                ).folder
                for name, keys in UNBIASED.items()
            },
        }


@pytest.fixture
def reader(browser):
    """Return a reader at a desk; at the end, the pages have asked nobody, and said nothing to the console."""
    reader = Reader(browser.new_page(viewport={"width": 1280, "height": 900}))
    yield reader
    reader.page.close()
    assert reader.said == []
    assert all(re.match(r"file:[^#]*\.html(#|$)", address) for address in reader.asked)


def test_an_area_is_chosen_by_part_of_its_name(folders, reader):
    """Without accents and with the keyboard alone; the numbers are those of `trellis query`, and a screen reader hears them."""
    folder, name = folders["drawn"], NAMES["0301"]
    reader.opens(folder / EXPLORER)
    reader.types("here", "corlu 1")
    field = reader.all("#here")
    assert field.get_attribute("aria-expanded") == "true"
    assert reader.all("#here-list [role=option]").all_inner_texts() == [f"{name} town 0301"]
    reader.presses("ArrowDown")
    assert reader.all(f"#{field.get_attribute('aria-activedescendant')}").get_attribute("aria-selected") == "true"
    reader.presses("Enter")
    cards = reader.cards()
    assert {f"From {name}", f"To {name}", f"Within {name}"} <= cards.keys()
    assert cards[f"From {name}"][:2] == card_of(asked(folder, {"origin": "town=0301"}))
    largest = reader.all(".card .figure").first.inner_text()
    said = "too small to say" if largest == "Too small to say" else largest
    assert reader.text("#announced").startswith(f"{name}: {said}")


def test_an_area_is_chosen_on_the_map(folders, reader):
    """A click on a town chooses it, one on another town shows how many go there, and one on a town that is chosen leaves it."""
    folder, (here, other) = folders["drawn"], (NAMES["0203"], NAMES["0105"])
    reader.opens(folder / EXPLORER, "#level=4")

    def click(code):
        reader.page.wait_for_selector("#map svg path")
        reader.page.mouse.click(*reader.page.evaluate(SHAPE, TOWNS.index(code)))

    reader.page.wait_for_selector("#map svg path")
    assert reader.text("#arcs-key") == "arcs: the largest flows"
    assert reader.all("#map svg path[stroke-linecap=round]").count() > 5
    click("0203")
    reader.waits_for(here, "")
    assert reader.cards()[f"From {here}"][:2] == card_of(asked(folder, {"origin": "town=0203"}))
    click("0105")
    reader.waits_for(here, other)
    answer = asked(folder, {"origin": "town=0203", "destination": "town=0105"})
    assert reader.cards()[f"From {here} to {other}"][0] == card_of(answer)[0]
    click("0203")
    reader.waits_for("", other)
    assert next(iter(reader.cards())) == f"To {other}"
    assert other in reader.text("#map-answer")
    click("0105")
    reader.waits_for("", "")
    assert list(reader.cards()) == ["Everything"]


def test_enter_chooses_only_what_is_clear(folders, reader):
    """Where several areas fit, Enter asks, and asks again; where no name fits, it offers what is spelt alike; Tab takes what is clear."""
    reader.opens(folders["drawn"] / EXPLORER)
    reader.types("here", "mill", "Enter", "Enter", "Escape", "Enter")
    assert not reader.all("#here-list [aria-selected=true]").count()
    assert reader.all("#here-list [role=option]").count() == len(MILLS) > 1
    assert list(reader.cards()) == ["Everything"]
    assert "areas fit" in reader.text("#here-hint")
    reader.presses("ArrowDown", "Enter")
    assert f"From {MILLS[0]}" in reader.cards()
    reader.page.click("#clear")
    reader.types("here", "Ashfrod")
    assert "Did you mean" in reader.text("#here-list")
    assert reader.all("#here-list [role=option]").all_inner_texts() == ["Ashford county 01"]
    reader.presses("Tab")
    assert reader.fields() == ["Ashford", ""]
    reader.page.click("#clear")
    reader.types("here", "0191")  # a code but for one letter
    assert "Did you mean" in reader.text("#here-list")
    assert reader.all("#here-list [role=option]").all_inner_texts() == [f"{NAMES['0101']} town 0101"]
    reader.presses("Tab")
    assert f"From {NAMES['0101']}" in reader.cards()
    reader.page.click("#clear")
    reader.types("here", "CORLU", "Enter")
    assert "From Çorlu" in reader.cards()
    reader.page.click("#clear")
    reader.types("here", "Ashfrod", "Tab")
    assert "From Ashford" in reader.cards()
    for typed in ("County of Ashford", "01"):  # the codes of towns begin so
        reader.page.click("#clear")
        reader.types("here", typed, "ArrowDown" if " " in typed else "End", "Enter")
        assert "From Ashford" in reader.cards()


def test_what_is_not_settled_stays_and_is_said(folders, reader):
    """A text that nothing was chosen for stays while the other field is filled in; numbers of before are marked until it is settled."""
    warning, copy = reader.all("#unsettled"), reader.all(".copy").first
    reader.opens(folders["drawn"] / EXPLORER)
    assert not warning.is_visible()
    reader.types("here", "mill", "Tab")
    assert warning.is_visible()
    reader.types("other", MILLS[1], "Enter")
    assert reader.fields() == ["mill", MILLS[1]]
    assert "Nothing is chosen" in reader.text("#here-hint")
    assert next(iter(reader.cards())) == f"To {MILLS[1]}"
    assert (warning.is_visible(), copy.is_visible()) == (True, False)
    reader.types("here", MILLS[0], "Enter")
    assert next(iter(reader.cards())) == f"From {MILLS[0]} to {MILLS[1]}"
    assert (warning.is_visible(), copy.is_visible()) == (False, True)
    reader.all("#here").select_text()
    reader.types("here", "mill", "Tab")
    assert "the page still shows" in reader.text("#here-hint")
    assert warning.is_visible()
    reader.page.click("#clear")
    assert not warning.is_visible()
    assert reader.fields() == ["", ""]


def test_totals_say_that_they_include_who_stays_and_how_many_do_not(folders, reader):
    """The sentence to quote says so too: without the note beside it, a reader takes "to Ashford" for those who come from elsewhere."""
    # How many do not stay is the difference of two answers, whose intervals, 90% each, hold at once with at least 80%; one that
    # reaches 0 has no number.
    folder, kinds = folders["drawn"], set()
    reader.opens(folder / EXPLORER)
    reader.types("here", "Ashford", "Enter")
    cards = reader.cards()
    for title, ends in (("From Ashford", "from Ashford to all areas"), ("To Ashford", "to Ashford from all areas")):
        assert f"{ends} together, those that stay within it included" in cards[title][2]
    for state, area in [*((address_of(area=town), f"town={town}") for town in TOWNS), ("#area=county/02", "county=02")]:
        reader.opens(folder / EXPLORER, state)
        notes = reader.all(".card .note").all_inner_texts()
        stays = asked(folder, {"origin": area, "destination": area})
        for end, words in (("origin", "go"), ("destination", "come from")):
            of_all = asked(folder, {end: area})
            assert None not in (of_all.low, of_all.high, stays.low, stays.high)
            low, high = of_all.low - stays.high, of_all.high - stays.low  # type: ignore[operator]
            said = f"about {of_all.count - stays.count:,} ({low:,} to {high:,}, with at least 80% probability)"
            if low <= 0:
                said = f"at most {high:,} (with at least 80% probability)"
            kinds.add(low > 0)
            assert f"Of these, {said} {words} elsewhere. The others stay within it." in notes
    assert kinds == {False, True}


def test_a_map_hatches_what_may_be_zero(folders, reader):
    """As many areas are hatched as rows of the list do not stand out without a "but", and arcs lead to none of them, from here and to here."""
    for direction, by in (("origin", ""), ("destination", "&by=1")):
        rows = between_towns(folders["drawn"])
        unclear = rows.filter(~pl.col("signal") | (pl.col("low") <= 0))[f"{direction}_town"].value_counts()
        town, many = unclear.sort("count").row(-1)
        reader.opens(folders["drawn"] / EXPLORER, f"{address_of(area=town)}&level=4{by}")
        reader.all("#map svg path").first.wait_for()
        assert reader.all("#map svg path[fill='url(#noise)']").count() == many > 0
        clear = rows.filter(pl.col(f"{direction}_town") == town).height - many
        assert reader.all("#map svg path[stroke-linecap=round]").count() == min(clear, 12)


def between_towns(folder):
    """Return the rows of two different towns."""
    table = pl.read_parquet(folder / "counts/level_4.parquet")
    return table.filter(pl.col("origin_town") != pl.col("destination_town"))


def test_where_trips_end_may_be_chosen_alone(folders, reader):
    """The page then shows where trips there begin, and of a row that is picked the pair; Start again forgets all of it."""
    folder = folders["drawn"]
    code = between_towns(folder).sort("count")["destination_town"][-1]
    name = NAMES[code]
    caption = f"Where trips to {name} begin"
    reader.opens(folder / EXPLORER)
    reader.types("other", name, "Enter")
    assert reader.text("#list caption") == caption
    assert next(iter(reader.cards())) == f"To {name}"
    assert reader.cards()[f"To {name}"][:2] == card_of(asked(folder, {"destination": f"town={code}"}))
    reader.page.check("#within")
    reader.all("#list tbody button").first.click()
    assert reader.fields()[1] == name
    assert reader.text("#list caption") == caption
    reader.opens(folder / EXPLORER, reader.page.evaluate("location.hash"))
    assert reader.all("#within").is_checked()
    assert reader.text("#list caption") == caption
    reader.page.click("#clear")
    assert list(reader.cards()) == ["Everything"]
    assert not reader.all("#within").is_checked()
    assert reader.fields() == ["", ""]


def test_a_pair_is_chosen_in_the_matrix(folders, reader):
    """A click on a cell of the matrix, or an address, shows the pair with the interval of its row; where areas have no names, codes stand for them."""
    folder = folders["bare"]
    reader.opens(folder / EXPLORER, "#level=4")
    cell = reader.all("#matrix svg g.mark-rect path").nth(7)
    cell.wait_for()
    assert not reader.all("#map-part").is_visible()
    cell.click()
    reader.page.wait_for_function("document.getElementById('other').value !== ''")
    here, other = reader.fields()
    assert {here, other} <= set(TOWNS)
    answer = asked(folder, {"origin": f"town={here}", "destination": f"town={other}"})
    of_row = f"{answer.low:,} to {answer.high:,}, a range from a list of which at least 90% hold the true number"
    assert reader.cards()[f"From {here} to {other}"][:2] == (f"{answer.count:,}", of_row)
    reader.opens(folder / EXPLORER, reader.page.evaluate("location.hash").replace("picked=1", ""))
    assert reader.cards()[f"From {here} to {other}"][:2] == card_of(answer)


def test_the_largest_flows_leave_out_those_within_an_area(folders, reader):
    """Until the reader asks for them; a switch leads from level to level, and the address of the page remembers it."""
    reader.opens(folders["drawn"] / EXPLORER, "#level=2")
    ends = "[...document.querySelectorAll('#list tbody tr')].map(row => [...row.querySelectorAll('button')].map(cell => cell.textContent))"
    pairs = reader.page.evaluate(ends)
    assert len(pairs) == 6
    assert all(one != other for one, other in pairs)
    reader.page.check("#within")
    assert {tuple(pair) for pair in reader.page.evaluate(ends)} >= {(one, one) for one, _ in pairs}
    reader.page.select_option("#level", label="town to town")
    assert "town to town" in reader.text("#list caption")
    assert "level=4" in reader.page.evaluate("location.hash")
    texts = reader.all("#list tbody td.number:nth-of-type(2)").all_inner_texts()
    counts = [int(text.replace(",", "")) for text in texts]
    assert counts == sorted(counts, reverse=True)


def test_a_number_that_is_noise_says_so(folders, reader):
    """Its sentence to quote gives no count, but the most that it can be; a clear number's gives its interval and can be copied."""
    folder = folders["drawn"]
    reader.opens(folder / EXPLORER, "#level=4")
    is_bound = "Of the other" in reader.page.inner_text("body")  # which is known of some draws of the noise
    for is_clear, pair in zip((False, True), reader.page.evaluate(PAIRS), strict=True):
        one, other = (TOWNS[number] for number in pair)
        reader.opens(folder / EXPLORER, address_of(area=one, to=other))
        answer = asked(folder, {"origin": f"town={one}", "destination": f"town={other}"})
        _, _, quote = reader.cards()[f"From {NAMES[one]} to {NAMES[other]}"]
        card = reader.all(".card").first
        if is_clear:
            assert re.match(f"There are (about|roughly) {answer.count:,} made-up commuters", quote)
            assert f"between {answer.low:,} and {answer.high:,}, with 90% probability" in quote
            card.locator("button.copy").click()
            assert card.locator(".copied").inner_text() == "Copied."
        else:
            assert f"too small to be told from noise; it is at most {answer.high:,}" in quote
            assert "There are" not in quote
            assert ("of the rows like this one are noise alone" in card.inner_text()) == is_bound


@pytest.mark.parametrize("name", STATES)
def test_pages_fit_every_screen_and_paper_and_have_contrast(name, folders, browser):
    """At a desk and on a phone nothing is wider than the screen, and every text stands out by 4.5 to 1, in charts too."""
    # On paper there is nothing to choose with, nothing is wider than the sheet, and the answer is there.
    for scheme in SCHEMES:
        for place, (width, height) in VIEWPORTS.items():
            reader = Reader(browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme))
            for state in STATES[name]:
                reader.opens(folders[name] / EXPLORER, state)
                reader.page.wait_for_selector("main svg g")
                assert reader.page.evaluate(WIDEST) <= width
                worst, *_ = reader.page.evaluate(CONTRASTS)
                assert worst[0] >= 4.5, worst
            if place == "desk":
                reader.page.emulate_media(media="print")
                reader.page.set_viewport_size({"width": A4, "height": 1000})
                reader.opens(folders[name] / EXPLORER, STATES[name][-1])
                reader.page.wait_for_selector("main svg g")
                assert reader.page.evaluate("document.documentElement.scrollWidth") <= A4
                assert not reader.all(".choose:visible, .copy:visible").count()
                assert reader.all(".card").count()
                assert reader.page.pdf(format="A4").startswith(b"%PDF")
            reader.page.close()
            assert reader.said == []


def test_a_page_may_ask_nobody_and_names_cannot_be_code(folders, tmp_path, browser):
    """A name that looks like HTML is a name; the policy refuses every request and every text that is read as code, whatever a script tries."""
    reader, failures = Reader(browser.new_page()), dict[str, str | None]()
    name = "</script><script>document.title='taken'</script><b>Port</b>"
    text = payload_text(open_folder(folders["drawn"])).replace(NAMES["0302"], name.replace('"', '\\"'))
    (tmp_path / EXPLORER).write_text(explorer_page("names", text.replace("<", "\\u003c")), encoding="utf-8")
    reader.opens(tmp_path / EXPLORER, address_of(area="0302"))
    assert (reader.page.title(), reader.fields()) == ("names", [name, ""])
    assert f"From {name}" in reader.cards()
    assert reader.said == []
    reader.page.on("requestfailed", lambda request: failures.update({request.url: request.failure}))
    assert reader.page.evaluate(TRIES) == ["refused"] * 3
    tried = [address for address in reader.asked if "example.org" in address]
    assert {failures.get(address) for address in tried} <= {"csp"}  # no packet was sent
    reader.page.close()


def test_attributes_and_sizes_show_what_a_query_answers(folders, reader):
    """One of an ordered axis is a line with its band and a table; two are a matrix; one is taken for one code of another; sizes are bars of groups."""
    reader.opens(folders["ages"] / EXPLORER, "#first=age")
    reader.page.wait_for_selector("#chart svg g.mark-area path")
    assert reader.all("#chart svg g.mark-line path").count() == 1
    reader.page.select_option("#first", label="zone")
    reader.page.select_option("#second", label="age")
    reader.page.wait_for_selector("#chart svg g.mark-rect path >> nth=19")
    reader.page.select_option("#second", label="none")
    for handle in ("to", "from"):
        reader.all(f"#only-1-{handle}").fill("4")
    assert reader.text("#only-1") == "4"
    row, answer = reader.all("#list tbody tr").nth(1), asked(folders["ages"], {"zone": "s", "age": "4"})
    shown = [f"{number:,}" for number in (answer.count, answer.low, answer.high)]
    assert row.locator("th, td").all_inner_texts()[:4] == ["s", *shown]
    row.locator("button").click()
    assert reader.cards()["Zone s and age 4"][:2] == card_of(answer)
    reader.opens(folders["homes"] / EXPLORER)
    reader.page.wait_for_selector("#chart svg g.mark-rect path")
    assert reader.all("#list thead th").all_inner_texts()[:4] == ["size", "groups", "low", "high"]
    answer = asked(folders["homes"], {"size": "2"})
    shown = [f"{number:,}" for number in (answer.count, answer.low, answer.high)]
    assert row.locator("th, td").all_inner_texts()[:4] == ["2", *shown]


def test_trips_with_attributes_have_a_map_and_a_choice_of_codes(folders, reader):
    """Cards, map, list and chart are of the mode and the hours that are chosen, by list and by two handles that cannot pass each other."""
    folder, name = folders["by mode"], NAMES["0203"]
    reader.opens(folder / EXPLORER)
    reader.types("here", name, "Enter")
    reader.page.select_option("#only-2", label="car")
    words = f"{name}, mode car"
    assert reader.cards()[f"From {words}"][:2] == card_of(asked(folder, {"origin": "town=0203", "mode": "car"}))
    reader.page.select_option("#first", label="hour")
    reader.page.wait_for_selector("#chart svg g.mark-line path")
    assert reader.all("#chart-list tbody tr").count() == 12
    reader.all("#only-3-to").fill("5")
    reader.all("#only-3-from").fill("7")
    assert [reader.page.input_value(f"#only-3-{end}") for end in ("from", "to")] == ["5", "5"]
    words += ", hour 5"
    where = {"mode": "car", "hour": "hour=5"}
    assert reader.cards()[f"From {words}"][:2] == card_of(asked(folder, {"origin": "town=0203"} | where))
    assert reader.cards()[f"To {words}"][:2] == card_of(asked(folder, {"destination": "town=0203"} | where))
    assert reader.text("#map-title") == f"Where trips from {name} end, mode car, hour 5, by town"
    assert reader.text("#list caption") == f"Where trips from {name} end, mode car, hour 5"
    rows = reader.all("#list tbody tr")
    town = rows.first.locator("small").inner_text().strip()
    answer = asked(folder, {"origin": "town=0203", "destination": f"town={town}"} | where)
    shown = [f"{number:,}" for number in (answer.count, answer.low, answer.high)]
    assert rows.first.locator("td").all_inner_texts()[:3] == shown
    reader.opens(folder / EXPLORER, reader.page.evaluate("location.hash"))
    assert f"From {words}" in reader.cards()
    reader.page.click("#clear")
    assert list(reader.cards()) == ["Everything"]


def test_several_areas_are_added_up(folders, reader):
    """They are chosen by name or on the map, as codes are in a list, and each is left by its button; whole counties are one area."""
    folder = folders["drawn"]
    reader.opens(folder / EXPLORER, "#level=4")
    reader.page.check("#several")
    for code in TOWNS[:2]:
        reader.types("here", NAMES[code], "Enter")
    reader.page.select_option("#clicks", label="where trips end")
    for code in ("0203", "0105"):
        reader.all("#map svg path").first.scroll_into_view_if_needed()
        reader.page.mouse.click(*reader.page.evaluate(SHAPE, TOWNS.index(code)))
        is_chosen = "name => document.getElementById('other-chosen').textContent.includes(name)"
        reader.page.wait_for_function(is_chosen, arg=NAMES[code])
    answer = asked(folder, {"origin": "town=0101+0102", "destination": "town=0203+0105"})
    assert next(iter(reader.cards().values()))[:2] == card_of(answer)
    reader.all("#other-chosen button").first.click()
    assert next(iter(reader.cards())) == f"From {NAMES['0101']} and {NAMES['0102']} to {NAMES['0105']}"
    towns = "%7C".join(f"town/01/{town}" for town in TOWNS[:COLUMNS])
    assert tuple(reader.page.evaluate(ASKS, f"#area={towns}")[:2]) == card_of(asked(folder, {"origin": "county=01"}))
    reader.page.uncheck("#several")
    assert reader.fields()[0] == NAMES[TOWNS[COLUMNS - 1]]
    reader.opens(folders["homes"] / EXPLORER)
    reader.page.check("#several")
    for code in ("A1", "B"):
        reader.page.select_option("#only-0", label=code)
    assert next(iter(reader.cards().values()))[:2] == card_of(asked(folders["homes"], {"region": "A1+B"}))


@pytest.mark.parametrize("name", [
    *("drawn", "by mode", "walked by mode", "leaves by mode", "unbiased by mode"),
    *("ages", "homes", "by tenure", *UNBIASED),
])  # fmt: skip
def test_sums_of_areas_are_what_a_query_adds_up(name, folders, reader):
    """Of random areas of both ends, codes and ranges, the page has the count, the interval, the standard deviation and the share of a query."""
    folder, chance = open_folder(folders[name]), np.random.default_rng(1)
    reader.opens(folder.path / EXPLORER)
    for trial in range(100):
        state, only, where = list[str](), list[str](), dict[str, str]()
        for number, (axis, levels) in enumerate(folder.axes.items()):
            if axis in FIELDS:
                level, codes = [("county", ["01", "02", "03"]), ("town", TOWNS)][chance.integers(2)]
                areas = sorted(chance.choice(codes, min(chance.integers(5), len(codes) - 1), replace=False).tolist())
                paths = [f"{level}/{code[:2]}" + (f"/{code}" if level == "town" else "") for code in areas]
                state += [f"{FIELDS[axis]}={'%7C'.join(paths)}"] if areas else []
                where |= {axis: f"{level}={'+'.join(areas)}"} if areas else {}
            elif axis in folder.ordered:
                codes = folder.ordered[axis].codes[-1]
                first, last = sorted(chance.choice(len(codes), 2).tolist())
                if name == "walked by mode" and trial % 2 and first + 1 < last:  # over the end
                    first, last = last, first
                ranges = [(first, last)]
                if (
                    trial % 3 == 0 and first + 3 < last and axis != "size"
                ):  # without a code in between; of sizes the page names the query
                    ranges = [(first, first + 1), (first + 3, last)]
                only += [f"{number}.{len(levels)}.{a}.{b}" for a, b in ranges if b - a < len(codes) - 1]
                texts = [f"{codes[a]}..{codes[b]}" if a != b else f"{levels[-1]}={codes[a]}" for a, b in ranges]
                where[axis] = "+".join(texts)
            else:
                codes = folder.tree.axes[number].codes[level := int(chance.integers(len(levels)))]
                some = sorted(chance.choice(len(codes), chance.integers(1, len(codes) + 1), replace=False).tolist())
                only += [f"{number}.{level + 1}.{code}.{code}" for code in some]
                where[axis] = "+".join(f"{levels[level]}={codes[code]}" for code in some)
        said = reader.page.evaluate(ASKS, "#" + "&".join([*state, "only=" + "_".join(only)]))
        answer = asked(folder.path, where)
        assert tuple(said[:2]) == card_of(answer), said
        deviation = float(said[3].partition("Standard deviation: ")[2].rstrip(".") or 0)
        assert answer.exact or deviation == pytest.approx(answer.sd or 0.0, rel=0.006), said
        if trial % 10 == 0 and axis in where:  # and which share it is of all areas of the last axis
            [told] = open_release(folder.path).query(**where, share_of={axis: "all"}).to_dicts()
            ends = [100 * (told[f"share{end}"] or 0) for end in ("", "_low", "_high")]
            text = "{:.3g}%, {:.3g}% to {:.3g}%".format(*ends)
            said = reader.page.evaluate(ASKS, f"#{'&'.join(state)}&only={'_'.join(only)}&whole={number}")
            assert ends[0] in {0, 100} or text in said[3] or ends[2] - ends[1] < 0.1, (said, text)


def test_areas_that_share_a_code_are_told_apart(tmp_path, reader, own_home):
    """Where a code is in several regions, titles name the region, the matrix has a cell for each pair, and a flow within one area is none between two."""
    areas = [(region, town) for region in "NS" for town in ("01", "02")]
    rows = [(*home, *work) for home in areas for work in areas for _ in range(50)]
    pl.DataFrame(areas, ["region", "town"], orient="row").write_csv(tmp_path / "areas.csv")
    pl.DataFrame(areas, ["area", "place"], orient="row").write_csv(tmp_path / "places.csv")
    pl.DataFrame(rows, ["hr", "ht", "wr", "wt"], orient="row").write_csv(tmp_path / "trips.csv")
    ends = {"table": "trips.csv", "origin": ["hr", "ht"], "destination": ["wr", "wt"]}
    one = {"table": "areas.csv", "levels": ["region", "town"]}
    both = {"origin": one, "destination": {"table": "places.csv", "levels": ["area", "place"]}}
    for name, hierarchy, finest, titles, title in (
        ("one", one, "town", 4, "01 (town, in S)"),
        ("two", both, {"origin": "town", "destination": "place"}, 8, "01 (place, in S (area))"),
    ):
        spec = SPEC | {"name": name, "dataset": name, "input": ends, "hierarchy": hierarchy}
        spec |= {"release": {"tree": "destination", "finest": finest}, "privacy": SPEC["privacy"] | {"epsilon": 50.0}}
        folder = release(spec_in(tmp_path, spec), different_people=True).folder
        reader.opens(folder / EXPLORER, "#level=4")
        reader.page.wait_for_selector("#matrix svg g.mark-rect path >> nth=15")
        places = reader.page.evaluate(
            "[...document.querySelectorAll('#matrix svg g.mark-rect path')].map(cell => { const box = cell.getBoundingClientRect(); return `${box.x} ${box.y}`; })"
        )
        assert len(set(places)) == 16
        assert reader.all("#list tbody tr").count() == 12
        shown = set(reader.all("#list tbody tr button").all_inner_texts())
        assert len(shown) == titles
        assert title in shown
    largest = largest_counts(open_folder(folder), 15)
    assert "N › 01" in {called for ends_called, _ in largest.rows for called in ends_called}


def test_what_is_too_much_is_shown_a_part_at_a_time_or_named(folders, tmp_path, reader, own_home):
    """Of a table of 160,000 cells the page shows the first, and more when asked; one with room for few rows says in which file the others are."""
    pl.DataFrame({"a": range(400), "b": range(400)}).write_csv(tmp_path / "rows.csv")
    spec = SPEC | {
        "input": {"table": "rows.csv", "features": ["a", "b"]},
        "hierarchy": {"a": {"values": 400}, "b": {"values": 400}},
        "release": {"order": ["a", "b"], "csv": False},
        "mechanism": "gaussian",
    }
    reader.opens(release(spec_in(tmp_path, spec)).folder / EXPLORER, "#first=a&second=b")
    rows = reader.all("#list tbody tr")
    assert rows.count() == 60
    reader.all("#list button.more").click()
    assert rows.count() == 240
    data = payload_text(open_folder(folders["drawn"]), most_rows=40).replace("<", "\\u003c")
    (tmp_path / EXPLORER).write_text(explorer_page("few rows", data), encoding="utf-8")
    reader.opens(tmp_path / EXPLORER, "#area=county/01")
    assert "counts/level_4.csv" in reader.text("#left-out")
    assert reader.all("#level option").all_inner_texts() == ["county"]
    assert card_of(asked(folders["drawn"], {"origin": "county=01"})) == reader.cards()["From Ashford"][:2]
    reader.page.evaluate(ASKS, "#area=county/01&to=town/02/0203")
    command = reader.all(".card code").first.inner_text().split()
    assert command == ["trellis", "query", str(tmp_path), "--origin", "county=01", "--destination", "town=0203"]
