"""Contrast of the texts of a page with what is behind them, as a browser shows it."""

from report_browser import until

SCHEMES = ("light", "dark")
LEAST = 4.5  # WCAG 2, success criterion 1.4.3, for text of any size
LEAST_OF_MARKS = 3  # success criterion 1.4.11, for what must be seen to understand a picture

# Each text that is to be seen: the element, the words, their colour and the colours behind it.
SEEN = """
const paints = (one, pseudo) => {
  const style = getComputedStyle(one, pseudo);
  return one.namespaceURI.endsWith("svg") ? style.fill : style.color;
};
const behind = (one) => {
  const layers = [];
  for (; one; one = one.parentElement) {
    const style = getComputedStyle(one);
    layers.push([style.backgroundColor, style.opacity]);
  }
  return layers;
};
const path = (one, pseudo) => [
  one.closest("[id]")?.id, one.tagName.toLowerCase(), one.getAttribute("class"), pseudo,
].filter(Boolean).join(" ");
const seen = [];
for (const one of document.querySelectorAll("body, body *")) {
  const own = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
  const words = own.map((node) => node.data).join(" ").trim();
  const shown = one.getClientRects().length && getComputedStyle(one).visibility === "visible";
  if (shown && words) seen.push([path(one), words, paints(one), behind(one)]);
  const hint = one.value === "" && one.placeholder;
  const pseudo = "::placeholder";
  if (shown && hint) seen.push([path(one, pseudo), hint, paints(one, pseudo), behind(one)]);
}
return seen;
"""


def rgba(colour):
    """rgb(r, g, b), rgba(r, g, b, a) or color(srgb r g b), as browsers compute them, in [0, 1]."""
    name, values = colour.rstrip(")").split("(")
    if name == "color":
        space, *mixed = values.split()
        assert space == "srgb" and len(mixed) == 3, colour
        return [float(value) for value in mixed], 1.0
    assert name in ("rgb", "rgba"), colour
    red, green, blue, *alpha = (float(value) for value in values.split(","))
    return [red / 255, green / 255, blue / 255], alpha[0] if alpha else 1.0


def over(front, back, alpha):
    return [alpha * f + (1 - alpha) * b for f, b in zip(front, back, strict=True)]


def luminance(colour):
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text, layers):
    """The ratio of text in front of layers, the nearest first; each fades with its opacity."""
    ground, opacity = [1.0, 1.0, 1.0], 1.0
    for colour, own_opacity in reversed(layers):
        front, alpha = rgba(colour)
        opacity *= float(own_opacity)
        ground = over(front, ground, alpha * opacity)
    front, alpha = rgba(text)
    lighter, darker = sorted(map(luminance, (over(front, ground, alpha * opacity), ground)))[::-1]
    return (lighter + 0.05) / (darker + 0.05)


def prefer(page, scheme):
    """Sets what the reader asked the system for, with the page open."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    query = f"return matchMedia('(prefers-color-scheme: {scheme})').matches"
    until(page, lambda: page.execute_script(query))
