"""Synthetic sets as a user makes them: drawn, and ready to release."""


def test_a_drawn_set_is_ready_to_release(newcomer):
    """The command writes tables, a README and a spec, and a rehearsal of the spec's release finds nothing wrong."""
    said = newcomer.run("synthesise", "random", "--density", "sparse", "--out", "set", "--seed", "7", "--json")
    assert said.code == 0, said.stderr
    told = said.json()
    wanted = {"set": "random sparse", "seed": 7, "spec": "set/spec.yaml", "areas": 435, "pairs": 1892}
    assert wanted.items() <= told.items()
    rehearsed = newcomer.run("release", told["spec"], "--dry-run", "--json")
    assert rehearsed.code == 0, rehearsed.stderr
    assert (rehearsed.json()["name"], len(rehearsed.json()["levels"])) == ("random-sparse", 9)


def test_what_cannot_be_drawn_is_refused(newcomer):
    """A size of a set that has none, a number below 1, a density that is none, a folder that is not empty: nothing is written."""
    before = sorted(newcomer.folder.rglob("*"))
    for options, told in (
        (
            ["country", "--groups", "5", "--out", "set"],
            "--groups is for the sets households and taxis; the set country",
        ),
        (["taxis", "--regions", "0", "--out", "set"], "--regions must be >= 1, got 0."),
        (["binary", "--density", "thick", "--out", "set"], "thick"),
        (["binary", "--out", "data"], "--out must be a new or empty folder, got data."),
    ):
        said = newcomer.run("synthesise", *options)
        assert (said.code, told in said.stderr) == (2, True), options
    assert sorted(newcomer.folder.rglob("*")) == before
