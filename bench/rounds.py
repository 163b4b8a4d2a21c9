"""Variants of `parax bench` in training, all of them in turn in every round."""

import statistics

import program


def measure(line):
    return program.run_json(line)["images_per_s"]


def compare(lines, base, rounds, seconds):
    """What each of `lines` ({name: command line without its seconds}) reaches, in images/s, and
    beside `base`, the name of one, in the same round. Yields a dict for each."""
    for line in lines.values():  # tunes
        measure([*line, "--seconds", "0.1"])
    names = list(lines)
    rates = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            rates[name].append(measure([*lines[name], "--seconds", str(seconds)]))
    for name in names:
        ratios = [rate / beside for rate, beside in zip(rates[name], rates[base])]
        yield {"who": name, "images_per_s": statistics.median(rates[name]),
               "ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios),
               "rounds": rates[name]}


def cell(row, base):
    text = f"{row['images_per_s']:,.1f}"
    if row["who"] == base:
        return text
    return f"{text}: {row['ratio']:.2f} ({row['lowest']:.2f} - {row['highest']:.2f})"
