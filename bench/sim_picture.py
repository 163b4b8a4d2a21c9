#!/usr/bin/env python3
"""Draws what `parax sim --sweep --json` found as an SVG: images/s over cores an instance, a panel a
machine, a line a policy. Give it the JSON files and the picture's name:
  bench/sim_picture.py a.json b.json docs/pictures/simulated-resnet50.svg"""

import json
import math
import sys

COLOURS = {"free": "#0072b2", "stagger": "#56b4e9", "gate": "#d55e00", "gate+defer": "#009e73",
           "barriered": "#444444"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 230, 56, 48, 76


def text(x, y, words, anchor="middle", colour="#333", size=12):
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}">{words}</text>')


def panel(report, left):
    rows = report["results"]
    most = max(row["images_per_s"] for row in rows)
    step = 10 ** math.floor(math.log10(most))
    top = step * math.ceil(most / step)
    wide = max(math.log2(max(row["cores_per_instance"] for row in rows)), 1)

    def x(row):
        return left + WIDTH * math.log2(row["cores_per_instance"]) / wide

    def y(value):
        return TOP + HEIGHT * (1 - value / top)

    parts = [text(left + WIDTH / 2, TOP - 14, report["machine"], size=13)]
    lines = 5 if top / step < 5 else round(top / step)
    for i in range(lines + 1):
        value = top * i / lines
        parts.append(f'<path d="M{left},{y(value):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(text(left - 6, y(value) + 4, f"{value:,.0f}", "end"))
    for row in {row["cores_per_instance"]: row for row in rows}.values():
        parts.append(text(x(row), TOP + HEIGHT + 16, row["cores_per_instance"]))
    parts.append(text(left + WIDTH / 2, TOP + HEIGHT + 34, "cores an instance"))
    for policy, colour in COLOURS.items():
        points = sorted((x(row), y(row["images_per_s"])) for row in rows if row["policy"] == policy)
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        if len(points) > 1:
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in points]
    return parts


def main():
    reports = [json.load(open(name)) for name in sys.argv[1:-1]]
    whole = LEFT + len(reports) * (WIDTH + GAP) - GAP + 16
    height = TOP + HEIGHT + 70
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height}" '
             'font-family="sans-serif">', f'<rect width="{whole}" height="{height}" fill="white"/>',
             text(whole / 2, 18, f"SIMULATED: {reports[0]['model']} training, "
                  f"{reports[0]['images_per_core']} images a core, images/s", size=15)]
    for i, report in enumerate(reports):
        parts += panel(report, LEFT + i * (WIDTH + GAP))
    for i, (policy, colour) in enumerate(COLOURS.items()):
        at = LEFT + 110 * i
        parts.append(f'<circle cx="{at}" cy="{height - 14}" r="5" fill="{colour}"/>')
        parts.append(text(at + 10, height - 10, policy, "start"))
    with open(sys.argv[-1], "w", encoding="utf-8") as file:
        file.write("\n".join(parts + ["</svg>"]) + "\n")


if __name__ == "__main__":
    main()
