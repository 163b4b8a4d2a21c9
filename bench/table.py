"""The comparison's results as Markdown. By itself, one table from the results of several runs, in
README.md: python3 bench/table.py A.json B.json"""

import json
import pathlib
import re
import sys

TITLES = {"training": "training", "throughput": "inference, most images/s",
          "latency": "inference, one image at a time"}


def _figure(row):
    if "latency_ms" in row:
        return f"{row['latency_ms']:.2f} ms"
    return f"{row['images_per_s']:,.{1 if row['images_per_s'] < 100 else 0}f} images/s"


def markdown(result):
    facts = result["machine"]
    made_by = " and ".join(f"`{command}`" for command in result["commands"])
    isa = "AVX-512" if facts["avx512"] else "AVX2"
    lines = [f"{facts['cpu']} ({isa}), {facts['cores']} core{'s' if facts['cores'] > 1 else ''}, "
             f"fp32, synthetic images, made by {made_by}. Each setting is the best that "
             "a screening found; a ratio above 1 means that ParaX is faster.", "",
             "| network | beside | theirs | ParaX | ratio (lowest - highest) |", "|---|---|---|---|---|"]
    for c in result["comparisons"]:
        what = f"{c['model']}, {TITLES[c['kind']]}"
        ours = f"{_figure(c)} ({c['setting']}; {100 * c['efficiency']:.0f} % of peak)"
        for row in c["rows"]:
            name = re.sub(r"^(PyTorch|OpenVINO|ONNX Runtime)",
                          lambda match: f"{match.group()} {row['version'].split('+')[0]}", row["who"])
            lines.append(f"| {what} | {name} | {_figure(row)} ({row['setting']}) | {ours} | "
                         f"{row['ratio']:.2f} ({row['lowest']:.2f} - {row['highest']:.2f}) |")
    return "\n".join(lines) + "\n"


def rewrite(page, text):
    """Puts `text` between the page's marks."""
    before, begin, rest = page.read_text().partition("<!-- bench -->\n")
    _, end, after = rest.partition("<!-- /bench -->\n")
    if not begin or not end:
        raise SystemExit(f"{page} has no lines <!-- bench --> and <!-- /bench -->")
    page.write_text(before + begin + text + end + after)


def together(results):
    """One result of several, which must be of one machine."""
    cpus = {result["machine"]["cpu"] for result in results}
    if len(cpus) != 1:
        raise SystemExit(f"results of different machines: {', '.join(sorted(cpus))}")
    return {"commands": [command for result in results for command in result["commands"]],
            "machine": results[0]["machine"],
            "comparisons": [c for result in results for c in result["comparisons"]]}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    files = [pathlib.Path(name) for name in sys.argv[1:]]
    text = markdown(together([json.loads(file.read_text()) for file in files]))
    rewrite(pathlib.Path(__file__).resolve().parent.parent / "README.md", text)
    print(text)
