"""The explorer of a published folder, as a reader uses it: by keyboard, by pointer, on a phone, in the dark, and on paper.

What each page looked like is kept in `build/explorer/`, for people to judge.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
import yaml

from flows.api import release
from tasks.explore.page import EXPLORER, explorer_page
from tasks.explore.payload import payload_text
from tasks.query.folder import open_folder
from tasks.tabulate.largest import largest_counts
from tests.support.ages import people_released
from tests.support.browsing import CONTRASTS, keep_picture
from tests.support.explored import DRAWN, NAMES, SPEC, TOWNS, Reader, asked, card_of, land_released
from tests.support.households import homes_released
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCREENSHOTS = REPOSITORY / "build" / "explorer"
DESK, PHONE, A4 = (1280, 900), (390, 844), (690, 1000)
STATES = {
    "drawn": ["", "#area=county/01", "#area=town/01/0101&to=town/02/0201"],
    "bare": ["", "#area=town/01/0101"],
    "ages": ["", "#first=age", "#first=zone&second=age"],
    "homes": [""],
}

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """Return the published folders of trips with names and maps, of trips without, of ages, and of households."""
    place = tmp_path_factory.mktemp("explored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        (place / "ages").mkdir()
        (place / "homes").mkdir()
        yield {
            "drawn": land_released(place / "drawn", DRAWN),
            "bare": land_released(place / "bare", {}, name="bare", dataset="bare"),
            "ages": people_released(place / "ages").folder,
            "homes": homes_released(place / "homes", dataset="homes").folder,
        }


@pytest.fixture
def reader(browser: "Browser") -> Iterator[Reader]:
    """Return a reader at a desk; at the end, the pages have asked nobody, and said nothing to the console."""
    page = browser.new_page(viewport={"width": DESK[0], "height": DESK[1]})
    reader = Reader(page)
    yield reader
    page.close()
    assert reader.said == []
    assert all(
        address.startswith("file:") and address.partition("#")[0].endswith(".html") for address in reader.requests
    )


def test_an_area_is_chosen_by_part_of_its_name(folders: Mapping[str, Path], reader: Reader) -> None:
    """Without accents and with the keyboard alone; the numbers are those of `trellis query`, and a screen reader hears them."""
    folder = folders["drawn"]
    reader.opens(folder / EXPLORER)
    reader.types("here", "corlu 1")
    field = reader.page.locator("#here")
    assert field.get_attribute("aria-expanded") == "true"
    offered = reader.page.locator("#here-list [role=option]").all_inner_texts()
    assert offered == [f"{NAMES['0301']} town 0301"]
    reader.page.keyboard.press("ArrowDown")
    chosen = reader.page.locator(f"#{field.get_attribute('aria-activedescendant')}")
    assert chosen.get_attribute("aria-selected") == "true"
    reader.page.keyboard.press("Enter")
    name, cards = NAMES["0301"], reader.cards()
    wanted = {
        f"From {name}": {"origin": "town=0301"},
        f"To {name}": {"destination": "town=0301"},
        f"Within {name}": {"origin": "town=0301", "destination": "town=0301"},
    }
    assert {title: cards[title][:2] for title in wanted} == {
        title: card_of(asked(folder, where)) for title, where in wanted.items()
    }
    largest = reader.page.locator(".card .figure").first.inner_text()
    said = "too small to say" if largest == "Too small to say" else largest
    assert reader.page.locator("#announced").inner_text().startswith(f"{name}: {said}")


def test_every_pair_shows_what_a_query_answers(folders: Mapping[str, Path], reader: Reader) -> None:
    """Of towns and of counties, of both mixed, with a row and without."""
    folder, kinds = folders["drawn"], set()
    places = [("town", town) for town in TOWNS[::3]] + [("county", "01"), ("county", "03")]
    for here in places[::2]:
        for there in places:
            address = [
                f"county/{code}" if level == "county" else f"town/{code[:2]}/{code}" for level, code in (here, there)
            ]
            reader.opens(folder / EXPLORER, f"#area={address[0]}&to={address[1]}")
            names = [reader.page.input_value(f"#{field}") for field in ("here", "other")]
            answer = asked(folder, {"origin": "=".join(here), "destination": "=".join(there)})
            title = f"Within {names[0]}" if here == there else f"From {names[0]} to {names[1]}"
            assert reader.cards()[title][:2] == card_of(answer), (here, there)
            kinds.add((here[0], there[0], answer.count == 0))
    assert {kind[:2] for kind in kinds} == {(one, other) for one in ("county", "town") for other in ("county", "town")}
    assert {kind[2] for kind in kinds} == {False, True}


def test_an_area_is_chosen_on_the_map(folders: Mapping[str, Path], reader: Reader) -> None:
    """A click on a town chooses it, one on another town shows how many go there, and one on a town that is chosen leaves it."""
    folder = folders["drawn"]
    reader.opens(folder / EXPLORER, "#level=4")

    def click(code: str) -> None:
        number = TOWNS.index(code)
        reader.page.wait_for_selector("#map svg path")
        shape = reader.page.evaluate(
            """number => {
                const data = JSON.parse(document.getElementById("data").textContent);
                const axis = data.axes[0].levels.find((level) => level.name === "town");
                const plane = data.shapes[axis.shape];
                const box = document.querySelector("#map svg").getBoundingClientRect();
                const scale = Math.min(box.width / plane.width, box.height / plane.height);
                return [box.x + box.width / 2 + (plane.x[number] - plane.width / 2) * scale,
                        box.y + box.height / 2 + (plane.y[number] - plane.height / 2) * scale];
            }""",
            number,
        )
        reader.page.mouse.click(*shape)

    def becomes(field: str, name: str) -> None:
        wanted = "([field, name]) => document.getElementById(field).value === name"
        reader.page.wait_for_function(wanted, arg=[field, name])

    reader.page.wait_for_selector("#map svg path")
    assert reader.page.locator("#arcs-key").inner_text() == "arcs: the largest flows"
    assert reader.page.locator("#map svg path[stroke-linecap=round]").count() > 5
    click("0203")
    becomes("here", NAMES["0203"])
    assert reader.cards()[f"From {NAMES['0203']}"][:2] == card_of(asked(folder, {"origin": "town=0203"}))
    click("0105")
    becomes("other", NAMES["0105"])
    answer = asked(folder, {"origin": "town=0203", "destination": "town=0105"})
    assert reader.cards()[f"From {NAMES['0203']} to {NAMES['0105']}"][0] == card_of(answer)[0]
    click("0203")
    becomes("here", "")
    assert next(iter(reader.cards())) == f"To {NAMES['0105']}"
    assert NAMES["0105"] in reader.page.locator("#map-said").inner_text()
    click("0105")
    becomes("other", "")
    assert list(reader.cards()) == ["Everything"]


def test_enter_chooses_only_what_is_clear(folders: Mapping[str, Path], reader: Reader) -> None:
    """Where several areas fit, Enter asks, and asks again; where no name fits, those are offered that are spelt alike or have the longer words;
    a code is clear; Tab takes what is clear.
    """
    reader.opens(folders["drawn"] / EXPLORER)
    reader.types("here", "mill", "Enter", "Enter", "Escape", "Enter")
    mills = [name for name in NAMES.values() if name.startswith("Mill")]
    assert not reader.page.locator("#here-list [aria-selected=true]").count()
    assert reader.page.locator("#here-list [role=option]").count() == len(mills) > 1
    assert list(reader.cards()) == ["Everything"]
    assert "areas fit" in reader.page.locator("#here-hint").inner_text()
    reader.page.keyboard.press("Tab")
    assert reader.page.input_value("#here") == "mill"
    assert "Nothing is chosen" in reader.page.locator("#here-hint").inner_text()
    assert list(reader.cards()) == ["Everything"]
    reader.page.focus("#here")
    reader.page.keyboard.press("ArrowDown")
    reader.page.keyboard.press("Enter")
    assert f"From {mills[0]}" in reader.cards()
    reader.page.click("#clear")
    reader.types("here", "Ashfrod")
    assert "Did you mean" in reader.page.locator("#here-list").inner_text()
    assert reader.page.locator("#here-list [role=option]").all_inner_texts() == ["Ashford county 01"]
    reader.page.keyboard.press("Tab")
    assert reader.page.input_value("#here") == "Ashford"
    assert "From Ashford" in reader.cards()
    for typed in ("County of Ashford", "01"):  # the codes of towns begin so
        reader.page.click("#clear")
        reader.types("here", typed)
        reader.page.keyboard.press("ArrowDown" if " " in typed else "End")
        reader.page.keyboard.press("Enter")
        assert "From Ashford" in reader.cards()


def test_what_is_not_settled_stays_and_is_said(folders: Mapping[str, Path], reader: Reader) -> None:
    """A text that nothing was chosen for stays while the other field is filled in; numbers of before are marked until it is settled."""
    warning = reader.page.locator("#unsettled")
    mills = [name for name in NAMES.values() if name.startswith("Mill")]
    reader.opens(folders["drawn"] / EXPLORER)
    assert not warning.is_visible()
    reader.types("here", "mill", "Tab")
    assert warning.is_visible()
    reader.types("other", mills[1], "Enter")
    assert [reader.page.input_value(f"#{field}") for field in ("here", "other")] == ["mill", mills[1]]
    assert "Nothing is chosen" in reader.page.locator("#here-hint").inner_text()
    assert next(iter(reader.cards())) == f"To {mills[1]}"
    assert warning.is_visible()
    assert not reader.page.locator(".copy").first.is_visible()
    reader.types("here", mills[0], "Enter")
    assert next(iter(reader.cards())) == f"From {mills[0]} to {mills[1]}"
    assert not warning.is_visible()
    assert reader.page.locator(".copy").first.is_visible()
    reader.page.locator("#here").select_text()
    reader.types("here", "mill", "Tab")
    assert "the page still shows" in reader.page.locator("#here-hint").inner_text()
    assert warning.is_visible()
    reader.types("here", mills[0], "Escape", "Tab")
    assert not warning.is_visible()
    reader.types("here", "mill", "Tab")
    reader.page.click("#clear")
    assert not warning.is_visible()
    assert [reader.page.input_value(f"#{field}") for field in ("here", "other")] == ["", ""]


def test_totals_say_that_they_include_who_stays_and_how_many_do_not(
    folders: Mapping[str, Path], reader: Reader
) -> None:
    """The sentence to quote says so too: without the note beside it, a reader takes "to Ashford" for those who come from elsewhere.

    How many do not stay is the difference of two answers, whose intervals, 90% each, hold at once with at least 80%; one that
    reaches 0 has no number.
    """
    reader.opens(folders["drawn"] / EXPLORER)
    reader.types("here", "Ashford", "Enter")
    cards = reader.cards()
    for title, ends in (("From Ashford", "from Ashford to all areas"), ("To Ashford", "to Ashford from all areas")):
        assert f"{ends} together, those that stay within it included" in cards[title][2]
    folder, kinds = folders["drawn"], set()
    for area in [*((f"town/{town[:2]}/{town}", f"town={town}") for town in TOWNS), ("county/02", "county=02")]:
        reader.opens(folder / EXPLORER, f"#area={area[0]}")
        notes = reader.page.locator(".card .note").all_inner_texts()
        stays = asked(folder, {"origin": area[1], "destination": area[1]})
        for end, words in (("origin", "go"), ("destination", "come from")):
            of_all = asked(folder, {end: area[1]})
            assert None not in (of_all.low, of_all.high, stays.low, stays.high)
            low, high = of_all.low - stays.high, of_all.high - stays.low  # type: ignore[operator]
            said = f"about {of_all.count - stays.count:,} ({low:,} to {high:,}, with at least 80% probability)"
            if low <= 0:
                said = f"at most {high:,} (with at least 80% probability)"
            kinds.add(low > 0)
            assert f"Of these, {said} {words} elsewhere. The others stay within it." in notes
    assert kinds == {False, True}


@pytest.mark.parametrize("direction", ["origin", "destination"])
def test_a_map_hatches_what_may_be_zero(direction: str, folders: Mapping[str, Path], reader: Reader) -> None:
    """As many areas are hatched as rows of the list do not stand out without a "but", and arcs lead to none of them."""
    folder = folders["drawn"]
    rows = pl.read_parquet(folder / "counts/level_4.parquet").filter(
        pl.col("origin_town") != pl.col("destination_town")
    )
    unclear = rows.filter(~pl.col("signal") | (pl.col("low") <= 0))[f"{direction}_town"].value_counts().sort("count")
    town, many = unclear.row(-1)
    by = "&by=1" if direction == "destination" else ""
    reader.opens(folder / EXPLORER, f"#area=town/{town[:2]}/{town}&level=4{by}")
    reader.page.locator("#map svg path").first.wait_for()
    assert reader.page.locator("#map svg path[fill='url(#noise)']").count() == many > 0
    clear = rows.filter(pl.col(f"{direction}_town") == town).height - many
    assert reader.page.locator("#map svg path[stroke-linecap=round]").count() == min(clear, 12)


def test_where_trips_end_may_be_chosen_alone(folders: Mapping[str, Path], reader: Reader) -> None:
    """The page then shows where trips there begin, and of a row that is picked the pair; Start again forgets all of it."""
    folder = folders["drawn"]
    rows = pl.read_parquet(folder / "counts/level_4.parquet").filter(
        pl.col("origin_town") != pl.col("destination_town")
    )
    code = rows.sort("count")["destination_town"][-1]
    name = NAMES[code]
    reader.opens(folder / EXPLORER)
    reader.types("other", name, "Enter")
    assert reader.page.locator("#list caption").inner_text() == f"Where trips to {name} begin"
    cards = reader.cards()
    assert next(iter(cards)) == f"To {name}"
    assert cards[f"To {name}"][:2] == card_of(asked(folder, {"destination": f"town={code}"}))
    reader.page.check("#within")
    reader.page.locator("#list tbody button").first.click()
    assert reader.page.input_value("#other") == name
    assert reader.page.locator("#list caption").inner_text() == f"Where trips to {name} begin"
    reader.opens(folder / EXPLORER, reader.page.evaluate("location.hash"))
    assert reader.page.locator("#within").is_checked()
    assert reader.page.locator("#list caption").inner_text() == f"Where trips to {name} begin"
    reader.page.click("#clear")
    assert list(reader.cards()) == ["Everything"]
    assert not reader.page.locator("#within").is_checked()
    assert [reader.page.input_value(f"#{field}") for field in ("here", "other")] == ["", ""]


def test_a_pair_is_chosen_in_the_matrix(folders: Mapping[str, Path], reader: Reader) -> None:
    """Where areas have no shapes, a click on a cell shows the pair with the interval of its row; where they have no names, codes
    stand for them. A pair that is asked for by its address has the interval of a query.
    """
    folder = folders["bare"]
    reader.opens(folder / EXPLORER, "#level=4")
    cell = reader.page.locator("#matrix svg g.mark-rect path").nth(7)
    cell.wait_for()
    assert not reader.page.locator("#map-part").is_visible()
    cell.click()
    reader.page.wait_for_function("document.getElementById('other').value !== ''")
    here, other = (reader.page.input_value(f"#{field}") for field in ("here", "other"))
    assert {here, other} <= set(TOWNS)
    answer = asked(folder, {"origin": f"town={here}", "destination": f"town={other}"})
    row = pl.read_parquet(folder / "counts/level_4.parquet").filter(origin_town=here, destination_town=other)
    of_row = f"{row['low'][0]:,} to {row['high'][0]:,}, a range from a list of which at least 90% hold the true number"
    assert reader.cards()[f"From {here} to {other}"][:2] == (f"{answer.count:,}", of_row)
    reader.opens(folder / EXPLORER, reader.page.evaluate("location.hash").replace("picked=1", ""))
    assert reader.cards()[f"From {here} to {other}"][:2] == card_of(answer)


def test_the_largest_flows_leave_out_those_within_an_area(folders: Mapping[str, Path], reader: Reader) -> None:
    """Until the reader asks for them; a switch leads from level to level, and the address of the page remembers it."""
    reader.opens(folders["drawn"] / EXPLORER, "#level=2")
    ends = "[...document.querySelectorAll('#list tbody tr')].map(row => [...row.querySelectorAll('button')].map(cell => cell.textContent))"
    pairs = reader.page.evaluate(ends)
    assert len(pairs) == 6
    assert all(one != other for one, other in pairs)
    reader.page.check("#within")
    assert {tuple(pair) for pair in reader.page.evaluate(ends)} >= {(one, one) for one, _ in pairs}
    reader.page.select_option("#level", label="town to town")
    assert "town to town" in reader.page.locator("#list caption").inner_text()
    assert "level=4" in reader.page.evaluate("location.hash")
    counts = [
        int(text.replace(",", ""))
        for text in reader.page.locator("#list tbody td.number:nth-of-type(2)").all_inner_texts()
    ]
    assert counts == sorted(counts, reverse=True)


def test_a_number_that_is_noise_says_so(folders: Mapping[str, Path], reader: Reader) -> None:
    """Its sentence to quote gives no count, but the most that it can be; a clear number's gives its interval and can be copied."""
    folder = folders["drawn"]
    reader.opens(folder / EXPLORER, "#level=4")
    pairs = reader.page.evaluate(
        """() => { const level = JSON.parse(document.getElementById("data").textContent).levels.find((one) => one.level === 4);
            const pick = (kind) => level.signal.findIndex((mark, row) => mark === kind && level.from[row] !== level.to[row]);
            return [0, 1].map((kind) => [level.from[pick(kind)], level.to[pick(kind)]]); }"""
    )
    for is_clear, pair in zip((False, True), pairs, strict=True):
        one, other = (TOWNS[number] for number in pair)
        reader.opens(folder / EXPLORER, f"#area=town/{one[:2]}/{one}&to=town/{other[:2]}/{other}")
        answer = asked(folder, {"origin": f"town={one}", "destination": f"town={other}"})
        _, _, quote = reader.cards()[f"From {NAMES[one]} to {NAMES[other]}"]
        card = reader.page.locator(".card").first
        if is_clear:
            assert re.match(f"There are (about|roughly) {answer.count:,} made-up commuters", quote)
            assert f"between {answer.low:,} and {answer.high:,}, with 90% probability" in quote
            card.locator("button.copy").click()
            assert card.locator(".copied").inner_text() == "Copied."
        else:
            assert f"too small to be told from noise; it is at most {answer.high:,}" in quote
            assert "There are" not in quote
            assert "of the rows like this one are noise alone" in card.inner_text()


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_every_screen_and_have_contrast(
    name: str, scheme: str, folders: Mapping[str, Path], browser: "Browser"
) -> None:
    """At a desk and on a phone nothing is wider than the screen, and every text stands out by 4.5 to 1, in charts too."""
    for place, (width, height) in {"desk": DESK, "phone": PHONE}.items():
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        reader = Reader(context.new_page())
        for number, state in enumerate(STATES[name]):
            reader.opens(folders[name] / EXPLORER, state)
            reader.page.wait_for_selector("main svg g")
            keep_picture(reader.page, SCREENSHOTS / f"{name}-{number}-{place}-{scheme}.png")
            assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
            worst, *_ = reader.page.evaluate(CONTRASTS)
            assert worst[0] >= 4.5, worst
        context.close()
        assert reader.said == []


@pytest.mark.parametrize("name", STATES)
def test_pages_print(name: str, folders: Mapping[str, Path], reader: Reader) -> None:
    """On paper there is nothing to choose with, nothing is wider than the sheet, and the answer is there."""
    reader.page.emulate_media(media="print")
    reader.page.set_viewport_size({"width": A4[0], "height": A4[1]})
    reader.opens(folders[name] / EXPLORER, STATES[name][-1])
    reader.page.wait_for_selector("main svg g")
    keep_picture(reader.page, SCREENSHOTS / f"{name}-paper.png")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= A4[0]
    assert not reader.page.locator(".choose:visible, .copy:visible").count()
    assert reader.page.locator(".card").count()
    assert reader.page.pdf(format="A4").startswith(b"%PDF")


def test_a_page_may_ask_nobody(folders: Mapping[str, Path], browser: "Browser") -> None:
    """Its policy refuses every request and every text that is read as code, whatever a script tries."""
    page = browser.new_page()
    reader = Reader(page)
    failures = dict[str, str | None]()
    page.on("requestfailed", lambda request: failures.update({request.url: request.failure}))
    reader.opens(folders["drawn"] / EXPLORER)
    told = page.evaluate(
        """async () => {
            const picture = new Promise((done) => { const image = new Image(); image.onload = () => done("shown");
                image.onerror = () => done("refused"); image.src = "https://example.org/a.png"; });
            const read = fetch("https://example.org/").then(() => "read", () => "refused");
            const script = document.createElement("script");  // not this one, which the browser's driver runs past the policy
            script.textContent = "setTimeout(() => { try { new Function('')(); window.told('run'); } catch { window.told('refused'); } })";
            const code = new Promise((done) => { window.told = done; });
            document.head.append(script);
            return [await picture, await read, await code]; }"""
    )
    assert told == ["refused"] * 3
    tried = [address for address in reader.requests if "example.org" in address]
    assert {failures.get(address) for address in tried} <= {"csp"}  # no packet was sent
    page.close()


def test_attributes_show_what_a_query_answers(folders: Mapping[str, Path], reader: Reader) -> None:
    """One of an ordered axis is a line with its band and a table; two are a matrix, of which one value can be taken."""
    folder = folders["ages"]
    reader.opens(folder / EXPLORER, "#first=age")
    reader.page.wait_for_selector("#chart svg g.mark-area path")
    assert reader.page.locator("#chart svg g.mark-line path").count() == 1
    reader.page.select_option("#first", label="zone")
    reader.page.select_option("#second", label="age")
    reader.page.wait_for_selector("#chart svg g.mark-rect path >> nth=19")
    reader.page.select_option("#only", label="4")
    row = reader.page.locator("#list tbody tr").nth(1)
    cells = row.locator("th, td").all_inner_texts()
    answer = asked(folder, {"zone": "s", "age": "4"})
    assert cells[:4] == ["s", f"{answer.count:,}", f"{answer.low:,}", f"{answer.high:,}"]
    row.locator("button").click()
    assert reader.cards()["Zone s and age 4"][:2] == card_of(answer)


def test_areas_that_share_a_code_are_told_apart(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a code is in several regions, titles name the region, the matrix has a cell for each pair, and a flow within one area is none
    between two; where each end calls the levels of one codebook otherwise, too.
    """
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    areas = [(region, town) for region in "NS" for town in ("01", "02")]
    rows = [(*home, *work) for home in areas for work in areas for _ in range(50)]
    pl.DataFrame(areas, ["region", "town"], orient="row").write_csv(tmp_path / "areas.csv")
    pl.DataFrame(areas, ["area", "place"], orient="row").write_csv(tmp_path / "places.csv")
    pl.DataFrame(rows, ["hr", "ht", "wr", "wt"], orient="row").write_csv(tmp_path / "trips.csv")
    ends = {"origin": ["hr", "ht"], "destination": ["wr", "wt"]}
    for name, hierarchy, finest in (
        ("one", {"table": "areas.csv", "levels": ["region", "town"]}, "town"),
        (
            "two",
            {
                "origin": {"table": "areas.csv", "levels": ["region", "town"]},
                "destination": {"table": "places.csv", "levels": ["area", "place"]},
            },
            {"origin": "town", "destination": "place"},
        ),
    ):
        spec = SPEC | {"name": name, "dataset": name, "input": {"table": "trips.csv", **ends}, "hierarchy": hierarchy}
        spec |= {"release": {"tree": "destination", "finest": finest}, "privacy": SPEC["privacy"] | {"epsilon": 50.0}}
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
        folder = release(tmp_path / "spec.yaml", different_people=True).folder
        reader.opens(folder / EXPLORER, "#level=4")
        reader.page.wait_for_selector("#matrix svg g.mark-rect path >> nth=15")
        places = reader.page.evaluate(
            "[...document.querySelectorAll('#matrix svg g.mark-rect path')].map(cell => { const box = cell.getBoundingClientRect(); return `${box.x} ${box.y}`; })"
        )
        assert len(set(places)) == 16
        rows_shown = reader.page.locator("#list tbody tr")
        assert rows_shown.count() == 12
        titles = {text for row in rows_shown.all() for text in row.locator("button").all_inner_texts()}
        assert len(titles) == (4 if name == "one" else 8)
        assert ("01 (town, in S)" if name == "one" else "01 (place, in S (area))") in titles
    largest = largest_counts(open_folder(folder), 15)
    assert largest is not None
    assert largest.without_within
    assert "N › 01" in {called for ends_called, _ in largest.rows for called in ends_called}


def test_a_table_of_many_cells_is_shown_a_part_at_a_time(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attributes of 400 values are a table of 160,000 cells, of which the page shows the first, and more when asked."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    pl.DataFrame({"a": range(400), "b": range(400)}).write_csv(tmp_path / "rows.csv")
    spec = {key: value for key, value in SPEC.items() if key not in {"input", "hierarchy", "release"}}
    spec |= {
        "input": {"table": "rows.csv", "features": ["a", "b"]},
        "hierarchy": {"a": {"values": 400}, "b": {"values": 400}},
    }
    spec |= {"release": {"order": ["a", "b"], "csv": False}, "mechanism": "gaussian"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    reader.opens(release(tmp_path / "spec.yaml").folder / EXPLORER, "#first=a&second=b")
    rows = reader.page.locator("#list tbody tr")
    assert rows.count() == 60
    reader.page.locator("#list button.more").click()
    assert rows.count() == 240


def test_households_are_counted_by_size(folders: Mapping[str, Path], reader: Reader) -> None:
    """The page of group sizes begins with a bar for each size, counts groups, and says what a query says."""
    folder = folders["homes"]
    reader.opens(folder / EXPLORER)
    reader.page.wait_for_selector("#chart svg g.mark-rect path")
    heads = reader.page.locator("#list thead th").all_inner_texts()
    assert heads[:4] == ["size", "groups", "low", "high"]
    cells = reader.page.locator("#list tbody tr").nth(1).locator("th, td").all_inner_texts()
    answer = asked(folder, {"size": "2"})
    assert cells[:4] == ["2", f"{answer.count:,}", f"{answer.low:,}", f"{answer.high:,}"]


def test_what_has_no_room_is_named(folders: Mapping[str, Path], tmp_path: Path, reader: Reader) -> None:
    """A page with room for few rows shows the coarse levels, and says in which file the others are."""
    data = payload_text(open_folder(folders["drawn"]), most_rows=40).replace("<", "\\u003c")
    (tmp_path / EXPLORER).write_text(explorer_page("few rows", data), encoding="utf-8")
    reader.opens(tmp_path / EXPLORER, "#area=county/01")
    assert "counts/level_4.csv" in reader.page.locator("#left-out").inner_text()
    assert reader.page.locator("#level option").all_inner_texts() == ["county"]
    assert card_of(asked(folders["drawn"], {"origin": "county=01"})) == reader.cards()["From Ashford"][:2]


def test_names_cannot_be_code(tmp_path: Path, reader: Reader, folders: Mapping[str, Path]) -> None:
    """A name that looks like a script or like HTML is a name."""
    name = "</script><script>document.title='taken'</script><b>Port</b>"
    text = payload_text(open_folder(folders["drawn"])).replace(NAMES["0302"], name.replace('"', '\\"'))
    (tmp_path / EXPLORER).write_text(explorer_page("names", text.replace("<", "\\u003c")), encoding="utf-8")
    reader.opens(tmp_path / EXPLORER, "#area=town/03/0302")
    assert reader.page.title() == "names"
    assert reader.page.input_value("#here") == name
    assert f"From {name}" in reader.cards()
