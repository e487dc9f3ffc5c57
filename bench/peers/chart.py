"""Line charts as SVG: a grid of panels with shared axes. The same data gives the same bytes."""

import html
import math

PANEL_WIDTH, PANEL_HEIGHT = 230, 170
LEFT, TOP, GAP_X, GAP_Y, LEGEND = 48, 58, 22, 46, 20
COLUMNS = 4
COLOURS = ["#0b5fa5", "#3d9be9", "#0f8a6a", "#7a5bd0", "#d4641b", "#e8a33d", "#b02a4c", "#777777", "#aaaaaa", "#444444"]


class Series:
    """One line of one panel: points {x: (low, middle, high)}."""

    def __init__(self, name, points):
        self.name = name
        self.points = points


def powers_of_two(low, high):
    """The scale's ends and its ticks, in log2."""
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    step = max(1, (last - first + 7) // 8)
    return first, max(last, first + 1), [2.0 ** e for e in range(first, last + 1, step)]


def text_of(value, percent):
    if percent:
        return f"{100 * value:.0f} %"
    return f"{value:.0f}" if value >= 1 else f"{value:.3g}"


def svg(title, unit, panels, logarithmic=True, percent=False):
    """`panels` is {name: [Series]}. The x axis has the tokens of all series, evenly spaced."""
    xs = sorted({x for panel in panels.values() for series in panel for x in series.points})
    values = [v for panel in panels.values() for series in panel for point in series.points.values() for v in point]
    names = list(dict.fromkeys(series.name for panel in panels.values() for series in panel))
    if logarithmic:
        low, high, ticks = powers_of_two(min(values), max(values))
        height_of = lambda v: (math.log2(v) - low) / (high - low)
    else:
        high = max(0.1, math.ceil(10 * max(values)) / 10)
        ticks = [high * i / 5 for i in range(6)]
        height_of = lambda v: v / high

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    per_line = max(1, columns * (PANEL_WIDTH + GAP_X) // 250)
    top = TOP + LEGEND * -(-len(names) // per_line)
    width = max(540, LEFT + columns * (PANEL_WIDTH + GAP_X))
    height = top + rows * (PANEL_HEIGHT + GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="11">', f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>',
           f'<text x="{LEFT}" y="38" fill="#555">{html.escape(unit)}</text>']
    for i, name in enumerate(names):
        x, y = LEFT + i % per_line * 250, 56 + LEGEND * (i // per_line)
        out.append(f'<path d="M{x} {y - 4}h18" stroke="{colour(names, name)}" stroke-width="2.5"/>'
                   f'<text x="{x + 23}" y="{y}">{html.escape(name)}</text>')
    for i, (name, panel) in enumerate(panels.items()):
        left = LEFT + i % columns * (PANEL_WIDTH + GAP_X)
        upper = top + i // columns * (PANEL_HEIGHT + GAP_Y)
        out += panel_svg(name, panel, left, upper, xs, ticks, height_of, names, i % columns == 0, percent)
    return "\n".join([*out, "</svg>", ""])


def colour(names, name):
    return COLOURS[names.index(name) % len(COLOURS)]


def panel_svg(name, panel, left, upper, xs, ticks, height_of, names, labelled, percent):
    across = lambda x: left + PANEL_WIDTH * (xs.index(x) + 0.5) / len(xs)
    down = lambda v: upper + PANEL_HEIGHT * (1 - height_of(v))
    out = [f'<text x="{left + 4}" y="{upper + 13}" font-weight="bold">{html.escape(name)}</text>']
    for tick in ticks:
        out.append(f'<path d="M{left} {down(tick):.1f}h{PANEL_WIDTH}" stroke="#ddd"/>')
        if labelled:
            out.append(f'<text x="{left - 5}" y="{down(tick) + 4:.1f}" text-anchor="end">{text_of(tick, percent)}</text>')
    for x in xs:
        out.append(f'<text x="{across(x):.1f}" y="{upper + PANEL_HEIGHT + 15}" text-anchor="middle">{x}</text>')
    out.append(f'<text x="{left + PANEL_WIDTH}" y="{upper + PANEL_HEIGHT + 29}" text-anchor="end" fill="#555">tokens</text>')
    for series in panel:
        stroke = f'stroke="{colour(names, series.name)}"'
        line = " ".join(f"{across(x):.1f},{down(middle):.1f}" for x, (_, middle, _) in sorted(series.points.items()))
        out.append(f'<polyline points="{line}" fill="none" stroke-width="2" {stroke}/>')
        for x, (low, _, high) in sorted(series.points.items()):
            out.append(f'<path d="M{across(x):.1f} {down(low):.1f}V{down(high):.1f}" stroke-width="4" opacity="0.35" {stroke}/>')
    return out
