#!/usr/bin/env python3
"""Draws a picture (SVG) of what `parax --trace` or `parax bench --profile --json` has written.

Usage: python3 scripts/trace-picture.py TRACE.json OUT.svg [--iteration N] [--from X] [--to Y]
       python3 scripts/trace-picture.py PROFILE.json OUT.svg

A trace: one iteration of instance 0 (by default the last but one that is whole) on all tracks;
--from and --to choose a part of it, such as 0.2 to 0.3. A profile: where the time of each kind of op went.
"""

import argparse
import json
import pathlib
from xml.sax.saxutils import escape

INK, LEFT, WIDTH, BAR = "#222b36", 112, 860, 30
KINDS = (  # the first whose word is in an event's kind or category gives its colour and name
    ("conv forward", "#4a7fb5", "convolution, linear: forward"),
    ("linear forward", "#4a7fb5", None),
    ("backward weights", "#234a75", "weight gradients"),
    ("conv backward", "#7fb0dd", "input gradients"),
    ("linear backward", "#7fb0dd", None),
    ("batch_norm", "#e09a3e", "batch norm"),
    ("wait", "#c0392b", "wait"),
    ("server", "#5a9e6f", "reduction, update"),
    ("", "#9aa4b0", "other ops"),
)


def colour(kind):
    return next(c for word, c, _ in KINDS if word in kind)


def text(x, y, content, size=12, anchor="start", fill=INK):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">'
            f"{escape(content)}</text>")


def legend(y, seen):
    shapes, x = [], 8
    for word, fill, name in KINDS:
        if name is None or fill not in seen:
            continue
        shapes.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{fill}"/>')
        shapes.append(text(x + 17, y + 10, name, 11))
        x += 17 + 6 * len(name) + 12
    return shapes


def picture(title, height, shapes):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        'font-family="system-ui, sans-serif">', f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *shapes, "</svg>", ""])


def whole_iteration(events):
    """The last but one that instance 0 has begun: of the last, the trace may not hold the end."""
    own = [e for e in events if e["tid"] == 0 and e["cat"] == "op"]
    found = sorted({e["args"]["iteration"] for e in own})
    return found[-2] if len(found) > 2 else found[-1]


def draw_trace(trace, arguments):
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    tracks = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    iteration = arguments.iteration or whole_iteration(events)
    own = [e for e in events if e["tid"] == 0 and e["args"]["iteration"] == iteration]
    begin, end = min(e["ts"] for e in own), max(e["ts"] + e["dur"] for e in own)
    begin, end = (begin + part * (end - begin) for part in (arguments.begin, arguments.end))
    scale = (WIDTH - LEFT - 14) / (end - begin)
    shapes, seen = [], set()
    for row, (track, name) in enumerate(sorted(tracks.items())):
        y = 14 + row * (BAR + 12)
        shapes.append(text(8, y + 19, name.split(" (")[0]))
        paths = {}
        for e in events:
            left, right = max(e["ts"], begin), min(e["ts"] + e["dur"], end)
            if e["tid"] != track or (right - left) * scale < 0.15:
                continue
            kind = e["args"]["kind"] if e["cat"] == "op" else e["cat"]
            x, width = LEFT + (left - begin) * scale, (right - left) * scale
            gap = 0.3 if width > 1.5 else 0  # so that neighbours of one colour can be told apart
            paths.setdefault(colour(kind), []).append(
                f"M{x:.1f} {y}h{width - gap:.1f}v{BAR}h-{width - gap:.1f}z")
        for fill, pieces in paths.items():
            shapes.append(f'<path fill="{fill}" d="{"".join(pieces)}"/>')
        seen |= paths.keys()
    y = 14 + len(tracks) * (BAR + 12)
    step = next(s for s in (50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 200000)
                if (end - begin) / s <= 12)
    for tick in range(int((end - begin) / step) + 1):
        x = LEFT + tick * step * scale
        shapes.append(f'<line x1="{x:.1f}" y1="{y - 6}" x2="{x:.1f}" y2="{y}" stroke="{INK}"/>')
        shapes.append(text(round(x, 1), y + 13, f"{tick * step / 1000:g}", 11, "middle"))
    shapes.append(text(8, y + 13, "ms", 11))
    shapes += legend(y + 26, seen)
    return picture(f"Iteration {iteration} on {len(tracks)} tracks", y + 48, shapes)


def draw_profile(profile):
    whole, parts = profile["seconds"], profile["parts"]
    rows = [(k["name"], k["seconds"], k["least_seconds"]) for k in profile["kinds"]]
    rows = [r for r in rows if r[1] > 0.004 * whole]
    rows += [(name.replace("_", " "), s, None) for name, s in parts.items()
             if name != "ops" and s > 0.001 * whole]
    scale = 480 / max(seconds for _, seconds, _ in rows)
    images = profile["images"]
    shapes, y = [], 12
    for name, seconds, least in rows:
        shapes.append(text(196, y + 14, name, 12, "end"))
        fill = colour("server" if name == "reduction" else name)
        shapes.append(f'<rect x="204" y="{y}" width="{seconds * scale:.1f}" height="18" '
                      f'fill="{fill}"/>')
        if least is not None:
            x = 204 + least * scale
            shapes.append(f'<line x1="{x:.1f}" y1="{y - 2}" x2="{x:.1f}" y2="{y + 20}" '
                          f'stroke="{INK}" stroke-width="2"/>')
        label = f"{1e3 * seconds / images:.3f} ms/image, {100 * seconds / whole:.1f} %"
        shapes.append(text(212 + max(seconds, least or 0) * scale, y + 14, label, 11))
        y += 25
    shapes.append(text(204, y + 12, "black line: what multiply-add peak and copy bandwidth allow", 11))
    return picture("Where the time goes, by kind of op", y + 24, shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("svg", type=pathlib.Path)
    parser.add_argument("--iteration", type=int)
    parser.add_argument("--from", dest="begin", type=float, default=0)
    parser.add_argument("--to", dest="end", type=float, default=1)
    arguments = parser.parse_args()
    content = json.loads(arguments.json.read_text())
    traced = "traceEvents" in content
    arguments.svg.write_text(
        draw_trace(content, arguments) if traced else draw_profile(content["profile"]))


if __name__ == "__main__":
    main()
