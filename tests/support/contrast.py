"""How far the texts of a page stand out from what is behind them, as a browser draws it."""

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
