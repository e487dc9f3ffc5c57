"""Line charts (a grid of panels with shared axes) and grouped bars as SVG. The same data gives the same bytes."""

import html
import math

PANEL_WIDTH, PANEL_HEIGHT = 230, 170
LEFT, TOP, GAP_X, GAP_Y, LEGEND = 48, 58, 22, 46, 20
COLUMNS = 4
BAR, GROUP_GAP, BARS_HEIGHT = 25, 26, 260
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
    out = head(title, unit, width, height)
    out += legend(names, names, per_line, 250, 2.5)
    for i, (name, panel) in enumerate(panels.items()):
        left = LEFT + i % columns * (PANEL_WIDTH + GAP_X)
        upper = top + i // columns * (PANEL_HEIGHT + GAP_Y)
        out += panel_svg(name, panel, left, upper, xs, ticks, height_of, names, i % columns == 0, percent)
    return "\n".join([*out, "</svg>", ""])


def head(title, unit, width, height):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="11">', f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>',
            f'<text x="{LEFT}" y="38" fill="#555">{html.escape(unit)}</text>']


def legend(shown, names, per_line, apart, thick):
    out = []
    for i, name in enumerate(shown):
        x, y = LEFT + i % per_line * apart, 56 + LEGEND * (i // per_line)
        out.append(f'<path d="M{x} {y - 4}h18" stroke="{colour(names, name)}" stroke-width="{thick}"/>'
                   f'<text x="{x + 23}" y="{y}">{html.escape(name)}</text>')
    return out


def bars(title, unit, groups, names):
    """`groups` is {name: {series: (low, middle, high)}}; `names` all series, in the order of their bars and colours."""
    shown = [name for name in names if any(name in group for group in groups.values())]
    highest = max(high for group in groups.values() for _, _, high in group.values())
    step = next(10**e * m for e in range(-3, 9) for m in (1, 2, 5) if highest / (10**e * m) <= 8)
    top = step * math.ceil(highest / step)
    width = max(540, LEFT + sum(BAR * len(group) + GROUP_GAP for group in groups.values()) + 8)
    per_line = max(1, (width - LEFT) // 120)
    upper = TOP + LEGEND * -(-len(shown) // per_line)
    down = lambda v: upper + BARS_HEIGHT * (1 - v / top)
    out = head(title, unit, width, upper + BARS_HEIGHT + 30)
    out += legend(shown, names, per_line, 120, 10)
    for i in range(round(top / step) + 1):
        out.append(f'<path d="M{LEFT} {down(i * step):.1f}H{width - 8}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 5}" y="{down(i * step) + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    left = LEFT + GROUP_GAP / 2
    for title_of, group in groups.items():
        out.append(f'<text x="{left + BAR * len(group) / 2:.1f}" y="{upper + BARS_HEIGHT + 17}" '
                   f'text-anchor="middle" font-weight="bold">{html.escape(title_of)}</text>')
        for name in [name for name in shown if name in group]:
            low, middle, high = group[name]
            out.append(f'<rect x="{left + 1:.1f}" y="{down(middle):.1f}" width="{BAR - 2}" '
                       f'height="{upper + BARS_HEIGHT - down(middle):.1f}" fill="{colour(names, name)}"/>'
                       f'<path d="M{left + BAR / 2:.1f} {down(low):.1f}V{down(high):.1f}" stroke="black"/>'
                       f'<text x="{left + BAR / 2:.1f}" y="{down(high) - 4:.1f}" font-size="9" '
                       f'text-anchor="middle">{middle:.0f}</text>')
            left += BAR
        left += GROUP_GAP
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
        if len(series.points) > 1:
            out.append(f'<polyline points="{line}" fill="none" stroke-width="2" {stroke}/>')
        else:
            x, y = line.split(",")
            out.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour(names, series.name)}"/>')
        for x, (low, _, high) in sorted(series.points.items()):
            out.append(f'<path d="M{across(x):.1f} {down(low):.1f}V{down(high):.1f}" stroke-width="4" opacity="0.35" {stroke}/>')
    return out
