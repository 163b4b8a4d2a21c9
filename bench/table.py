"""The comparison's results as Markdown."""

import re

TITLES = {"training": "training", "throughput": "inference, most images/s",
          "latency": "inference, one image at a time"}


def _figure(row):
    if "latency_ms" in row:
        return f"{row['latency_ms']:.2f} ms"
    return f"{row['images_per_s']:,.{1 if row['images_per_s'] < 100 else 0}f} images/s"


def markdown(result):
    facts = result["machine"]
    isa = "AVX-512" if facts["avx512"] else "AVX2"
    lines = [f"{facts['cpu']} ({isa}), {facts['cores']} core{'s' if facts['cores'] > 1 else ''}, "
             f"fp32, synthetic images, made by `{result['command']}`. Each setting is the best that "
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
