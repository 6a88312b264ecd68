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
