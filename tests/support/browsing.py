"""A page of a file as a browser shows it: what it asks and says, and how far its texts stand out."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SCHEMES = ("light", "dark")
VIEWPORTS = {"desk": (1200, 900), "phone": (390, 844)}
A4 = 690  # pixels between the margins

# The contrast of every text with what is behind it, the least first: the ratio, the text, its colour and the other one.
CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const parts = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = (element) => { for (let at = element; at; at = at.parentElement) {
        const colour = parts(getComputedStyle(at).backgroundColor); if (colour[3] === 255) return colour; }
        return [255, 255, 255, 255]; };
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim()).join("");
        const shape = element.getBoundingClientRect();
        if (!text || !shape.width || element.closest("script, style, .unseen, noscript")) continue;
        const style = getComputedStyle(element);
        const [front, back] = [parts(element.closest("svg") ? style.fill : style.color), behind(element)];
        const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
        found.push([(high + 0.05) / (low + 0.05), text.slice(0, 40), String(front), String(back)]);
    }
    return found.sort((a, b) => a[0] - b[0]);
}"""


@dataclass
class Visit:
    """A page that a browser shows: its tab, the addresses that it asked, and what its console said."""

    page: Any  # of Playwright
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self):
        """Note every request and every message."""
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))


@contextmanager
def visited(browser, path, size, scheme="light"):
    """Show a page in a tab of its own."""
    visit = Visit(browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme))
    visit.page.goto(path.as_uri())
    yield visit
    visit.page.close()
