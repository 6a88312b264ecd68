"""`trellis new`: a spec begun from a table's header, whose every key is explained; and the JSON Schema that editors complete by."""

import importlib
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from flows.cli import main as cli
from flows.specification.explanations import explanation, section_of
from flows.specification.file import parse_spec
from flows.specification.keys import Spec
from flows.specification.sections.input import MOST_FEATURES
from flows.specification.starters.headers import candidates, guess_columns
from flows.specification.starters.starter import SCHEMA, starter
from flows.specification.undecided import FILL_IN, UNDECIDED, Undecided, marked_in
from storage.errors import InputError, SpecError, UsageError
from tasks.ingest.sources.files import FileTable
from tasks.mechanisms import MECHANISMS
from tests.support.keys import decided
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

LODES = "w_geocode,h_geocode,S000,SA01,SA02,createdate"
TAXIS = "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,PULocationID,DOLocationID,fare"
TRIPS = {  # headers with the ends, the count and the unit
    "origin,destination,count": ("origin", "destination", "count", None),
    "o,d,n": ("o", "d", "n", None),
    "from_id,to_id,num_trips": ("from_id", "to_id", "num_trips", None),
    "home,work,person_id": ("home", "work", None, "person_id"),
    "userId,OriginCode,DestCode,Flow": ("OriginCode", "DestCode", "Flow", "userId"),
    "start,end,weight": ("start", "end", None, None),
    "origen,destino,viajes": ("origen", "destino", "viajes", None),
    "origem,destino,fluxo": ("origem", "destino", "fluxo", None),
    "herkomst,bestemming,aantal": ("herkomst", "bestemming", "aantal", None),
    "Quelle,Ziel,Fahrten": ("Quelle", "Ziel", "Fahrten", None),
    "départ,arrivée,flux": ("départ", "arrivée", "flux", None),
    "residencia,trabajo,viajes": ("residencia", "trabajo", "viajes", None),
    "lieu de résidence,lieu de travail,effectif": ("lieu de résidence", "lieu de travail", "effectif", None),
    "otract,dtract,Workers": ("otract", "dtract", "Workers", None),
    "PERNO,hzone,wzone": ("hzone", "wzone", None, "PERNO"),
    "dep_stop,arr_stop,vehicles": ("dep_stop", "arr_stop", "vehicles", None),
    "huishouden_nr,vertrek_gemeente,aankomst_gemeente": ("vertrek_gemeente", "aankomst_gemeente", None, "huishouden_nr"),
    "Kartennummer,Einstieg,Ausstieg": ("Einstieg", "Ausstieg", None, "Kartennummer"),
    "personnummer,hemkommun,arbetskommun,antal": ("hemkommun", "arbetskommun", "antal", "personnummer"),
    "id_osoby,miejsce_zamieszkania,miejsce_pracy": ("miejsce_zamieszkania", "miejsce_pracy", None, "id_osoby"),
    "kişi_id,çıkış,varış": ("çıkış", "varış", None, "kişi_id"),
    "PRO_COM_RES,PRO_COM_DEST,INDIVIDUI": ("PRO_COM_RES", "PRO_COM_DEST", "INDIVIDUI", None),
    "PERID,SA2_UR,SA2_POW,COUNT": ("SA2_UR", "SA2_POW", "COUNT", "PERID"),
}  # fmt: skip
UNKNOWN = {  # headers that say neither trips nor features, with the columns that may be either
    "a,b,n": ["a", "b"],
    "x1,x2,id": ["x1", "x2"],
    "stop_id,stop_sequence,pickup_type,drop_off_type": ["stop_id", "stop_sequence", "pickup_type", "drop_off_type"],
}
# Headers of published tables, as their documentation has them: ONS (ODWP01EW), INSEE (flux domicile-travail), ISTAT (matrice del
# pendolarismo), BFS, Stats NZ, LODES, NYC TLC, Citi Bike, ActivitySim, MATSim, GTFS (stop_times) and the UK's National Travel Survey.
_MSOA, _PLACE = "Middle layer Super Output Areas", "Place of work indicator (4 categories)"
REAL = {
    f"{_MSOA} code,{_MSOA} label,MSOA of workplace code,MSOA of workplace label,{_PLACE} code,{_PLACE} label,Count": ([f"{_MSOA} code"], ["MSOA of workplace code"], "Count", None),
    "CODGEO,LIBGEO,DCLT,L_DCLT,NBFLUX_C19_ACTOCC15P": (["CODGEO"], ["DCLT"], "NBFLUX_C19_ACTOCC15P", None),
    "Tipo record,Tipo residenza,Provincia di residenza,Comune di residenza,Sesso,Motivo dello spostamento,Luogo di studio o di"
    " lavoro,Provincia abituale di studio o lavoro,Comune abituale di studio o di lavoro,Stato estero di studio o di lavoro,Mezzo,"
    "Orario di uscita,Tempo impiegato,Stima del numero di individui,Numero di individui": (["Provincia di residenza", "Comune di residenza"], ["Provincia abituale di studio o lavoro", "Comune abituale di studio o di lavoro"], "Numero di individui", None),
    "REF_YEAR,GEO_COMM_RESID,GEO_COMM_WORK,PERSPECTIVE,VALUE": (["GEO_COMM_RESID"], ["GEO_COMM_WORK"], "VALUE", None),
    "SA2_code_usual_residence_address,SA2_name_usual_residence_address,SA2_usual_residence_easting,SA2_usual_residence_northing,"
    "SA2_code_workplace_address,SA2_name_workplace_address,SA2_workplace_easting,SA2_workplace_northing,Work_at_home,"
    "Drive_a_private_car_truck_or_van,Public_bus,Total": (["SA2_code_usual_residence_address"], ["SA2_code_workplace_address"], "Total", None),
    "w_geocode,h_geocode,S000,SA01,SA02,SA03,SE01,SE02,SE03,SI01,SI02,SI03,createdate": (["h_geocode"], ["w_geocode"], "S000", None),
    "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,RatecodeID,store_and_fwd_flag,PULocationID,"
    "DOLocationID,payment_type,fare_amount,extra,mta_tax,tip_amount,tolls_amount,total_amount,congestion_surcharge": (["PULocationID"], ["DOLocationID"], None, None),
    "ride_id,rideable_type,started_at,ended_at,start_station_name,start_station_id,end_station_name,end_station_id,start_lat,"
    "start_lng,end_lat,end_lng,member_casual": (["start_station_id"], ["end_station_id"], None, None),
    "trip_id,person_id,household_id,primary_purpose,trip_num,outbound,trip_count,destination,origin,tour_id,purpose,"
    "destination_logsum,depart,trip_mode,mode_choice_logsum": (["origin"], ["destination"], None, "person_id"),
    "person,trip_number,trip_id,dep_time,trav_time,wait_time,traveled_distance,euclidean_distance,main_mode,modes,"
    "start_activity_type,end_activity_type,start_facility_id,start_link,start_x,start_y,end_facility_id,end_link,end_x,end_y": (["start_facility_id"], ["end_facility_id"], None, "person"),
    "trip_id,arrival_time,departure_time,stop_id,stop_sequence,stop_headsign,pickup_type,drop_off_type,timepoint": ([], [], None, None),
    "TripID,DayID,IndividualID,HouseholdID,PSUID,PersNo,JourSeq,MainMode_B04ID,TripPurpose_B01ID,TripStart,TripEnd,"
    "TripOrigGOR_B02ID,TripDestGOR_B02ID,W5": (["TripOrigGOR_B02ID"], ["TripDestGOR_B02ID"], None, "IndividualID"),
}  # fmt: skip
ODD = {  # headers as people have them: years before modes, a sequence, an index without a name, totals by year, spaces, no pair alike
    "home,work,2018_car,2018_bus": (["home"], ["work"], None, None),
    "origin,destination,15min,30min,60min": (["origin"], ["destination"], None, None),
    "home,work,trip_num": (["home"], ["work"], None, None),
    "from,to,leg_no,card": (["from"], ["to"], None, "card"),
    "origem,destino,numero,phone": (["origem"], ["destino"], "numero", "phone"),
    "Karten-Nr.,Start-Zone,Start-Zonenname,Ziel-Zone,Ziel-Zonenname,Abfahrt": (["Start-Zone"], ["Ziel-Zone"], None, "Karten-Nr."),
    "home,work,2018,2019,2020": (["home"], ["work"], None, None),
    "Origin zone,Destination zone,No. of trips": (["Origin zone"], ["Destination zone"], "No. of trips", None),
    "date,hour,zone_id,boardings": ([], [], "boardings", None),
    "Count,Area of residence,Area of workplace": (["Area of residence"], ["Area of workplace"], "Count", None),
    "sex,age,2nd_job,3rd_job,household": ([], [], None, "household"),
    "person,origin,destination": (["origin"], ["destination"], None, "person"),
    "id_user,sex,age,user_no": ([], [], None, "id_user"),
}  # fmt: skip
NO_TRIPS = "person_id,sex,race,education-num,count"
MANY = "age," + ",".join(f"feature{k}" for k in range(80))
FEATURES = {  # headers with the features
    NO_TRIPS: ("sex", "race", "education-num"),
    MANY: ("age", *(f"feature{k}" for k in range(MOST_FEATURES - 1))),
    "sex,age,ride_id,created_at": ("sex", "age"),
    "sex,age,uuid,email": ("sex", "age"),
    "age,sex,expansion factor,WEIGHT": ("age", "sex"),
    "zone_id,income_band,purpose": ("zone_id", "income_band", "purpose"),
    "sex,rowId,age,pickup_datetime": ("sex", "age"),
}
with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(str(REPOSITORY / "docs"))
    SPECS_SCHEMA = Draft202012Validator(importlib.import_module("spec_keys").spec_schema([*MECHANISMS]))
DEEP = "home_region,home_town,work_region,work_town,trips"


def table(folder, header, rows=""):
    """Write a table with a header and return where it is."""
    (folder / "table.csv").write_text(f"{header}\n{rows}", encoding="utf-8")
    return str(folder / "table.csv")


def paths_of(model, above=""):
    """Yield the class, the key and its whole path for every key of a spec, sections and what is in them."""
    for key, info in model.model_fields.items():
        yield model, key, f"{above}{key}"
        if below := section_of(info):
            yield from paths_of(below, f"{above}{key}.")


@pytest.mark.parametrize("header", [*TRIPS, *FEATURES])
def test_columns_are_guessed_by_the_names_that_the_field_uses(header):
    """Ends, count and unit of trips are known by their names; other columns are features but identifiers, times and places."""
    columns = guess_columns(header.split(","), MOST_FEATURES)
    if header in TRIPS:
        origin, destination, *others = TRIPS[header]
        assert (columns.origin, columns.destination, columns.features) == ((origin,), (destination,), ())
        assert [columns.count, columns.unit] == others
        assert {*columns.left_over} == {*header.split(",")} - {*TRIPS[header]}
    else:
        assert columns.features == FEATURES[header]
        assert {*columns.left_over} == {*header.split(",")} - {*columns.features, columns.count, columns.unit}


@pytest.mark.parametrize(("header", "every_key"), [
    *((header, False) for header in (LODES, TAXIS, "home,work,person_id", NO_TRIPS, DEEP, MANY, *[*REAL][::4], *[*ODD][-2:])),
    *((header, True) for header in (LODES, NO_TRIPS, MANY)),
])  # fmt: skip
def test_a_starter_needs_decisions_only(header, every_key, tmp_path):
    """Whatever the table, the starter names its columns and the schema, is refused with all that is to be decided, and is a spec once it is."""
    begun = starter(table(tmp_path, header), tmp_path, every_key=every_key)
    first, *lines = begun.spec.splitlines()
    assert Path(urlsplit(first.removeprefix("# yaml-language-server: $schema=")).path) == SCHEMA
    assert every_key or len(lines) < 40
    keys = yaml.safe_load(begun.spec)
    assert not list(SPECS_SCHEMA.iter_errors(keys))
    left = [*marked_in(keys)]
    assert {"dataset", "privacy.unit", "privacy.epsilon", "privacy.neighbours", "budget.epsilon"} <= {*left}
    count, unit, several = begun.columns.count, begun.columns.unit, len(begun.columns.units) > 1
    assert ("input.count" in left) == (count is not None)
    assert ("hierarchy.table" in left) == (not begun.columns.features)
    assert keys["input"].get("unit") == (FILL_IN if several else unit)
    for said, is_said in {  # what each row is, and whose records are kept; no unit is claimed
        "no column seems to say whose record a row is": not (unit or several),
        "nobody checks this limit: it is your promise": not (unit or several),
        "keeps this many, drawn at random, and drops the others": unit or several,
        "each row is one record: if a column says how many": count is None,
    }.items():
        assert (said in begun.spec) == bool(is_said), said
    with pytest.raises(Undecided) as refusal:
        parse_spec(begun.spec, tmp_path / "spec.yaml")
    assert [of.field for of in refusal.value.decisions if of.value == UNDECIDED] == left
    assert all(field in str(refusal.value) for field in left)
    spec = parse_spec(decided(begun.spec), tmp_path / "spec.yaml").spec
    assert spec.input.table == "table.csv"
    assert {*spec.axes} == ({*begun.columns.features} or {"origin", "destination"})
    assert spec.input.count == count
    assert several or spec.input.unit == unit


@pytest.mark.parametrize("header", [*REAL, *ODD])
def test_columns_of_real_headers_are_proposed(header):
    """Of tables as offices and operators publish them, ends, count and unit are proposed; of several units, none."""
    origin, destination, count, unit = (REAL | ODD)[header]
    columns = guess_columns(header.split(","), MOST_FEATURES)
    assert ([*columns.origin], [*columns.destination]) == (origin, destination)
    assert (columns.count, columns.units[:1]) == (count, (unit,) if unit else ())
    assert columns.unit == (None if len(columns.units) > 1 else unit)


@pytest.mark.parametrize("every_key", [False, True])
@pytest.mark.parametrize(("separator", "encoding"), [
    (";", None), ("\t", None), ("|", None), (";", "windows-1252"), (",", "windows-1252"),
])  # fmt: skip
def test_a_starter_says_how_its_files_are_written(separator, encoding, every_key, tmp_path):
    """Offices write semicolons and older encodings: the first line tells, and the spec has what reads table and codebook."""
    rows = {"trips": ("départ", "arrivée", "n"), "areas": ("région", "lieu")}
    for name, header in rows.items():
        lines = [header, *((f"{code}", f"{code}é", "1")[: len(header)] for code in "AB")]
        text = "".join(f"{separator.join(line)}\n" for line in lines)
        (tmp_path / f"{name}.csv").write_text(text, encoding=encoding or "utf-8")
    trips, areas = (str(tmp_path / f"{name}.csv") for name in rows)
    begun = starter(trips, tmp_path, areas, every_key=every_key)
    keys, said = yaml.safe_load(begun.spec), {"separator": separator, "encoding": encoding}
    needed = {key: value for key, value in said.items() if value not in {None, ","}}
    assert keys["input"]["csv"] == keys["hierarchy"]["csv"] == needed
    assert (begun.columns.origin, begun.columns.destination, begun.columns.count) == (("départ",), ("arrivée",), "n")
    spec = parse_spec(decided(begun.spec), tmp_path / "spec.yaml")
    assert spec.source().table.name == "trips.csv"


@pytest.mark.parametrize("header", UNKNOWN)
def test_what_is_not_known_is_to_decide(header, tmp_path):
    """Where nothing says what the columns are, none is proposed, and all that may hold codes are listed beside both ends."""
    begun = starter(table(tmp_path, header), tmp_path)
    keys = yaml.safe_load(begun.spec)
    assert keys["input"]["origin"] == keys["input"]["destination"] == FILL_IN
    assert "features" not in keys["input"]
    assert f"For example: {' or '.join(UNKNOWN[header])}\n" in begun.spec
    assert "no trips? Write features:" in begun.spec
    assert parse_spec(decided(begun.spec), tmp_path / "spec.yaml").spec.input.features is None


@pytest.mark.parametrize(("codebook", "levels"), [
    ("state,county\nAD,02\nAE,02\nAD,01\n", ["state", "county"]),
    ("line,stop,name\n1,a,A\n1,b,B\n2,a,C\n2,b,B\n", ["line", "stop"]),
], ids=["counties", "stops"])  # fmt: skip
def test_codes_that_are_unique_by_path_need_a_column_per_level(codebook, levels, tmp_path):
    """Where only several columns together tell areas apart, they are the levels, and the ends are to decide unless they have as many columns."""
    (tmp_path / "areas.csv").write_text(codebook)
    for header, is_open in ((LODES, True), (DEEP, False), ("a,b,n", True)):
        begun = starter(table(tmp_path, header), tmp_path, str(tmp_path / "areas.csv"))
        keys = yaml.safe_load(begun.spec)
        assert keys["hierarchy"] == {"table": "areas.csv", "levels": levels}
        assert (keys["input"]["origin"] == keys["input"]["destination"] == FILL_IN) == is_open
        chosen = {"input.origin": ["a1", "a2"], "input.destination": ["b1", "b2"]}
        assert parse_spec(decided(begun.spec, chosen), tmp_path / "spec.yaml").spec.levels("origin") == levels


@pytest.mark.parametrize("first", [",N101", "N101", "N101,", "44,001", "E01000001,Ely 1"])
def test_the_first_area_of_a_codebook_is_no_header(first, tmp_path):
    """Where the first line looks like the rows below it, an area would be lost without a word; the same rows below a header are read."""
    rows = "".join(f"{first.replace('1', str(number))}\n" for number in range(1, 5))
    (tmp_path / "areas.csv").write_text(rows)
    told = r"areas\.csv must hold the column names; .+ looks like the codes below it"
    with pytest.raises(InputError, match=told) as refused:
        starter(table(tmp_path, "home,work"), tmp_path, str(tmp_path / "areas.csv"))
    assert refused.value.hint == "Add a line of column names above the rows."
    header = ",".join("" if not field else f"zone{place}" for place, field in enumerate(first.split(",")))
    (tmp_path / "areas.csv").write_text(f"{header}\n{rows}")
    assert starter(table(tmp_path, "home,work"), tmp_path, str(tmp_path / "areas.csv")).spec


def test_the_levels_are_those_of_the_codebook(tmp_path):
    """Columns that nest are levels, coarse to fine, with the names beside them; coordinates and columns with gaps are none."""
    rows = (f"N{k},T{k},{k}.5,C{k // 4},County {k // 4},X,{'' if k % 3 else k}\n" for k in range(16))
    (tmp_path / "areas.csv").write_text("name,tract,lat,county,county_name,nation,zone\n" + "".join(rows))
    keys = yaml.safe_load(starter(table(tmp_path, LODES), tmp_path, str(tmp_path / "areas.csv")).spec)
    labels = {"county": "county_name"}
    assert keys["hierarchy"] == {"table": "areas.csv", "levels": ["county", "tract"], "labels": labels}
    assert keys["release"]["finest"] == FILL_IN
    with pytest.raises(UsageError, match="--codebook is for trips"):
        starter(table(tmp_path, NO_TRIPS), tmp_path, str(tmp_path / "areas.csv"))
    (tmp_path / "areas.csv").write_text("area,region\n1,1\n1,2\n1,2\n")
    with pytest.raises(InputError, match=r"no column of areas\.csv, and no set of columns, identifies each row"):
        starter(table(tmp_path, LODES), tmp_path, str(tmp_path / "areas.csv"))


def test_an_index_is_no_level_and_a_weight_no_count(tmp_path):
    """As data frames and surveys have them, also behind semicolons; and a name in one word with its level is the label of the level."""
    (tmp_path / "areas.csv").write_text("Unnamed: 0;town;zone;Zonenname\n0;N;N1;A\n1;N;N2;B\n2;S;S1;C\n3;S;S2;D\n")
    begun = starter(table(tmp_path, "CODGEO;DCLT;NBFLUX_C19;weight"), tmp_path, str(tmp_path / "areas.csv"))
    keys = yaml.safe_load(begun.spec)
    assert (keys["input"]["origin"], keys["hierarchy"]["levels"]) == ("CODGEO", ["town", "zone"])
    assert keys["hierarchy"]["labels"] == {"zone": "Zonenname"}
    assert "weight seems to be a weight, which is no number of records" in begun.spec


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8, unique_by=str.casefold))
@settings(max_examples=20)
def test_any_names_of_columns_make_a_starter(names):
    """Names with quotes, braces, line breaks or YAML's own words are written so that they are read again as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.specification.starters.starter._header", lambda _: (names, True))
        found = FileTable("TABLE", Path("/t.csv"))
        patch.setattr("flows.specification.starters.starter._written", lambda *_: (found, {}))
        patch.setattr("flows.specification.starters.starter._refuse_repeated", lambda _: None)
        columns = guess_columns(names, MOST_FEATURES)
        able = candidates(names)
        if not columns.origin and not able:
            with pytest.raises(InputError, match="has no column that could hold codes"):
                starter("/t.csv", Path("/"))
            return
        begun = starter("/t.csv", Path("/"))
    chosen = {"input.origin": able[0], "input.destination": able[-1]}
    units = {"input.unit": columns.units[0]} if columns.units else {}
    spec = parse_spec(decided(begun.spec, chosen | units), Path("spec.yaml")).spec
    expected = begun.columns.features or begun.columns.origin or (able[0],)
    assert tuple(spec.input.features or spec.input.origin or ()) == expected


@pytest.mark.parametrize("header", [LODES, NO_TRIPS])
def test_every_key_stands_in_a_starter_below_its_explanation(header, tmp_path):
    """Each key of the spec is there, given or behind a #, in its section, and the words of its class stand above it."""
    lines = starter(table(tmp_path, header), tmp_path, every_key=True).spec.splitlines()
    place = -1
    for model, key, path in paths_of(Spec):
        begins = re.compile(rf"{'  ' * path.count('.')}#?{key}:(\s|$)")
        place = next((at for at in range(place + 1, len(lines)) if begins.match(lines[at])), -1)
        assert place > 0, path
        above = []
        for line in reversed(lines[:place]):
            if not re.match(r" *# ", line):
                break
            above.append(line.strip().removeprefix("# "))
        said = explanation(model, key)
        assert len(said) > 5, path
        assert key != "mechanism" or all(name in said for name in MECHANISMS)
        assert said in " ".join(reversed(above)), path


def test_keys_that_are_left_out_may_be_given(tmp_path):
    """The # taken away, each key is accepted as it stands, but for those in place of others, and a utility that needs features."""
    begun = starter(table(tmp_path, LODES), tmp_path, every_key=True).spec
    lines = re.sub(rf"(?m){FILL_IN} # .*For example: (.+?)(?: or .+)?$", r"\1", begun).splitlines()
    refused, tried = set(), set()

    def section_line(at, indent):
        return next(line for line in reversed(lines[:at]) if re.match(rf"{indent[2:]}#?\w", line))

    for at, line in enumerate(lines):
        key = re.match(r"( *)#(\w+):", line)
        if key is None or (key[1] and re.match(rf"{key[1][2:]}#\w", section_line(at, key[1]))):
            continue
        tried.add(key[2])
        given = [*lines]
        for below in range(at, len(lines)):
            if below > at and (not lines[below].strip() or not lines[below].startswith(f"{key[1]}  ")):
                break
            given[below] = re.sub(r"^( *)#(\w)", r"\1\2", lines[below])
        try:
            parse_spec("\n".join(given), tmp_path / "spec.yaml")
        except SpecError:
            refused.add(key[2])
    in_place_of_others = "features grid order rho target utility group groups group_sizes region matrix zones"
    assert refused == set(in_place_of_others.split())
    assert {"mechanism", "csv", "noisy_counts", "intervals", "schedule", "run", "noise"} <= tried


RECORDS = [  # first lines of tables without a header, of which each may also begin with a blank or have one
    "17,Zoé Müller,home,work,café", "1001,alice@x.org,from,to,age", "1987,Ng,residence,workplace,2019",
    "Ng,origin,destination,51.5,-0.1", "Ng,,start,end,sex", "alice@x.org,pickup,dropoff", "Ng,f,2001-05-17,age",
]  # fmt: skip


@pytest.mark.parametrize(("header", "rows", "rule"), [
    ("440010301,440070102,17", "", "must hold the column names"),
    ('home,"sex', "R1,Alice Rossi\nR2,Bob\n", "must have no line break in a column name"),
    ("17Rossi,Alice,2001-Feb", "", "half of the fields begin with a digit"),
    ("R1;Rossi;Alice", "", "seems to use `;`"),
    ("home,work,home,work", "", r"two columns home\."),  # where no other column may hold codes
    ("Home,home", "", "Home and home, which differ"),
    *((line.format(record), "", "some fields are blank or values") for record in RECORDS for line in ("{}", ",{}", "{},")),
])  # fmt: skip
def test_rows_are_not_copied_as_names(tmp_path, header, rows, rule):
    """Names that reach into the rows, are mostly none, or in part, are twice or all in one are refused, and no value is quoted."""
    with pytest.raises(InputError, match=rule) as refusal:
        starter(table(tmp_path, header, rows), tmp_path)
    values = ("Rossi", "Alice", "R1", "2001", "4400", "Ng", "Zoé", "alice", "café", "1987")
    assert not any(of in f"{refusal.value} {refusal.value.hint}" for of in values)


@pytest.mark.parametrize("header", [",home,work,Zoé", "home,work,Zoé,", ",sex,age,trips", "from,to,Zoé,2018,2019,2020"])
def test_an_index_and_years_are_names_beside_known_ones(header, tmp_path):
    """A blank first or last name and years in a row are accepted where others are known; what the spec does not use is then not in it."""
    begun = starter(table(tmp_path, header), tmp_path)
    assert begun.columns.left_over == ()
    assert "Zoé" not in begun.spec
    assert "2018" not in begun.spec


def test_only_the_header_is_read(tmp_path):
    """No value of a row is in a starter, which says what to do if its names are values; names may begin with digits if few do."""
    planted = 'SECRET-CODE,"never closed\x00\n1,2,3,4,5,6,7,8\n'
    assert "SECRET" not in starter(table(tmp_path, LODES, planted), tmp_path).spec
    said = starter(table(tmp_path, "sex,age,2nd_job"), tmp_path, every_key=True).spec.replace("\n# ", " ")
    assert "If the column names below are data values, the table has no header line: do not share this file." in said
    assert len(re.findall(rf"\{{values: {FILL_IN}\}}", said)) == 3


def test_new_writes_a_file_once(tmp_path, capsys, monkeypatch):
    """The starter goes to stdout, or to a file that is new; as JSON it stands beside the columns that were guessed."""
    where = table(tmp_path, LODES)
    monkeypatch.chdir(tmp_path)
    assert cli._run(["new", where]) == cli.DONE
    text = capsys.readouterr().out
    for code in (cli.DONE, cli.WRONG):
        assert cli._run(["new", where, "--out", "spec.yaml"]) == code
        assert Path("spec.yaml").read_text(encoding="utf-8") == text
    assert "already exists" in capsys.readouterr().err
    assert cli._run(["new", "table.csv", "--json"]) == cli.DONE
    answer = json.loads(capsys.readouterr().out)
    assert (answer["spec"], answer["path"]) == (text, None)
    assert answer["columns"]["left_over"] == ["SA01", "SA02", "createdate"]


@pytest.mark.parametrize("name", ["gone.csv", "table.xls", "broken.parquet", "nothing.csv", "counts.csv"])
def test_what_is_no_table_is_refused_in_words(name, tmp_path, capsys):
    """A file that is not there, of another kind, broken, empty, or without codes ends with 2 and one error on stdout."""
    for file, text in (("table.xls", "x"), ("broken.parquet", "x"), ("nothing.csv", ""), ("counts.csv", "count\n1\n")):
        (tmp_path / file).write_text(text)
    assert cli._run(["new", str(tmp_path / name), "--json"]) == cli.WRONG
    answer = json.loads(capsys.readouterr().out)
    assert answer["field"] == "TABLE"
    assert answer["error"].startswith("TABLE")


# the JSON Schema -----------------------------------------------------------------------------------------------------


ALSO = [
    {"release": SPEC["release"] | {"csv": "every_level", "records": True, "noisy_counts": False}},
    {"run": {"prefect": "off", "max_memory": "4GB", "workers": "processes"}},
    {"privacy": SPEC["privacy"] | {"split": [0.5, 0.5], "distinct": "province"}},
    {"privacy": SPEC["privacy"] | {"split": {"geometric": 2}, "invariants": "region"}},
    {"schedule": {"cron": "0 3 1 * *", "timezone": "UTC", "until": "12 releases"}},
    {"hierarchy": SPEC["hierarchy"] | {"blank": "own_area"}},
    {"input": {"table": "t.csv", "features": ["age", "size", "day", "sex", "kind"]}, "hierarchy": {
        "age": {"ordered": 100, "branching": 3}, "size": {"ordered": ["s", "m", 3]}, "sex": {"values": ["f", 1]}, "kind": [1, 2],
        "day": {"ordered": {"first": "2024-01-01", "last": "2024-12-31"}, "calendar": ["month"]},
    }},
]  # fmt: skip
WRONG = [
    {"mechanism": "inftdaa"},
    {"mechanisms": "inftda"},
    {"privacy": SPEC["privacy"] | {"epsilon": "much"}},
    {"privacy": SPEC["privacy"] | {"neighbors": "substitution"}},
    {"run": {"max_memory": "plenty"}},
    {"input": {"origin": "home", "destination": "work"}},
]


def test_what_trellis_reads_is_accepted():
    """Every example, and whatever is written in a shorter way: one text for a list, a list for values, bytes with a unit, off."""
    Draft202012Validator.check_schema(SPECS_SCHEMA.schema)
    examples = [yaml.safe_load(path.read_text("utf-8")) for path in (REPOSITORY / "deployments/specs").glob("*.yaml")]
    assert examples
    for keys in (*examples, *(SPEC | keys for keys in ALSO)):
        assert not list(SPECS_SCHEMA.iter_errors(keys)), keys


@pytest.mark.parametrize("keys", WRONG, ids=lambda keys: next(iter(keys)))
def test_what_is_misspelt_is_not(keys):
    """A key or a value that Trellis refuses by itself, without the others, is refused in the editor."""
    assert list(SPECS_SCHEMA.iter_errors(SPEC | keys))
    if "mechanism" not in keys:
        with pytest.raises(SpecError):
            parse_spec(yaml.safe_dump(SPEC | keys), Path("spec.yaml"))
