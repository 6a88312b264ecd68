"""A page of another server that the operator has open: it can drive nothing of the server of `trellis up`, and read nothing."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.support.server import Prefect
from tests.support.spec import SPEC
from tests.support.up import below, bring_up
from tests.support.user import User

# What a page can try without asking anybody, and what a browser asks the server about first.
TRIES = """async ([api, deployment]) => {
    const start = `${api}/deployments/${deployment}/create_flow_run`;
    const json = {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"};
    const plain = {method: "POST", headers: {"Content-Type": "text/plain"}, body: "{}"};
    const told = {};
    for (const [name, url, how] of [
        ["read", `${api}/health`, {}],
        ["list", `${api}/flow_runs/filter`, json],
        ["list without asking", `${api}/flow_runs/filter`, plain],
        ["start", start, json],
        ["start without asking", start, {...plain, mode: "no-cors"}],
        ["start as a beacon", start, {...plain, mode: "no-cors", keepalive: true}],
    ]) {
        try {
            const answer = await fetch(url, how);
            told[name] = answer.type === "opaque" ? "opaque" : `read ${answer.status}`;
        } catch (fault) {
            told[name] = "refused";
        }
    }
    told.socket = await new Promise((done) => {
        const socket = new WebSocket(`${api.replace("http", "ws")}/events/out`);
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    });
    return told;
}"""

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@pytest.fixture
def elsewhere(tmp_path_factory):
    """Serve the page of an empty folder on another port of this machine, and yield its address."""
    page = partial(SimpleHTTPRequestHandler, directory=str(tmp_path_factory.mktemp("elsewhere")))
    with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def up(newcomer):
    """Bring Trellis up without a password, so that nothing but the page's origin is in the way."""
    user = User(newcomer.folder, Prefect(newcomer.folder / "home" / "prefect", {}))
    (user.folder / "specs").mkdir()
    (user.folder / "specs" / "by-hand.yaml").write_text(below(SPEC, name="by-hand"))
    up = bring_up(user, "--no-auth")
    yield up
    up.process.kill()
    up.process.wait()


def test_a_page_elsewhere_can_do_nothing(up, elsewhere, browser):
    """Each try fails in the page, and starts no run on the server; the server's own page reads what it asks for."""
    deployment = up.call("/deployments/name/release/by-hand")["id"]
    runs = up.call("/flow_runs/count", {})
    page = browser.new_page()
    page.goto(elsewhere)
    told = page.evaluate(TRIES, [up.api, deployment])
    assert set(told.values()) <= {"refused", "opaque"}, told
    assert {name for name, how in told.items() if how == "opaque"} <= {"start without asking", "start as a beacon"}
    assert up.call("/flow_runs/count", {}) == runs
    page.goto(up.api.removesuffix("/api"))
    own = page.evaluate(TRIES, [up.api, deployment])
    assert own["list"] == "read 200"  # so the tries have power: on the server's own page they do what they say
    assert own["start"] in {"read 200", "read 201"}
    assert up.call("/flow_runs/count", {}) > runs
    page.close()
