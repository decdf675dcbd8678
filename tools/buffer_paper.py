"""What the text of the paper on GRAM and DEDU says of figures 4, 5 and 6 in numbers, and what came
out here. Its plots have more, which are not read off."""


class Rows:
    """The points of a result, by figure and curve."""

    def __init__(self, results):
        self.curves = {}
        for row in results:
            if row["value"] is not None:
                self.curves.setdefault((row["figure"], row["curve"]), {})[row["x"]] = row

    def curve(self, figure, name, key="value"):
        """{x: value}; a curve that is the same along the whole axis has the one key None."""
        return {x: row[key] for x, row in self.curves.get((figure, name), {}).items()
                if row.get(key) is not None}

    def pairs(self, figure, name, base):
        """(x, value, value of base there), in order."""
        mine, other = self.curve(figure, name), self.curve(figure, base)
        return sorted((x, value, other.get(x, other.get(None))) for x, value in mine.items()
                      if x is not None and other.get(x, other.get(None)) is not None)

    def fits_from(self, figure, name):
        """The smallest x from which on a page is read from the disk only where it is met first."""
        rows = self.curves.get((figure, name), {})
        fitting = [x for x in sorted(x for x in rows if x is not None)
                   if rows[x]["misses"] == rows[x]["distinct_pages"]]
        return fitting[0] if fitting else None


def most_saved(pairs):
    """(percent less than the base, x) where that is most."""
    return max(((100 * (1 - value / base), x) for x, value, base in pairs if base),
               default=(None, None))


def steps_down(curve):
    """How many of the steps along the axis go down; None where there is none."""
    values = [curve[x] for x in sorted(x for x in curve if x is not None)]
    return (f"{sum(b < a for a, b in zip(values, values[1:]))} of {len(values) - 1} steps"
            if len(values) > 1 else None)


def above(pairs):
    return (f"{sum(value > base for _, value, base in pairs)} of {len(pairs)} points" if pairs
            else None)


def crossing(pairs):
    """[the last x where dedu costs less, the first where it does not]; None if they do not cross
    once."""
    costs_less = [value < base for _, value, base in pairs]
    if True not in costs_less or costs_less != sorted(costs_less, reverse=True) or all(costs_less):
        return None
    at = costs_less.index(False)
    return [pairs[at - 1][0], pairs[at][0]]


def increase(pairs, x):
    return next((100 * (value / base - 1) for at, value, base in pairs if at == x and base), None)


NOT_GIVEN = "not given"
NO_PLACE = "the text gives it for all synthetic workloads, and not where"


def claims(results):
    """[{figure, what, unit, paper, ours, note}]; `ours` is None where the result has no such
    points."""
    rows = Rows(results)
    by_working_set = most_saved(rows.pairs("4c", "gram", "native"))
    sharing = rows.curve("6", "dedu", "sharing_ratio")
    alone = rows.curve("6", "dedu, host alone", "sharing_ratio")
    said = [
        ("4a", "device memory from which the working set fits", "Ki pages", 596,
         rows.fits_from("4a", "gram"),
         "its working set is 640 and its host memory 64, so 576 should do"),
        ("4a", "gram costs less than native, at most", "%", 83,
         most_saved(rows.pairs("4a", "gram", "native"))[0], NO_PLACE),
        ("4a", "share of transfers over the bus in the cost, below", "%", 1, None,
         "not measured apart here"),
        ("4b", "utility goes down as device memory grows", "", NOT_GIVEN,
         steps_down(rows.curve("4b", "gram")), "it goes down, says the text, without numbers"),
        ("4c", "gram costs less than native, at most", "%", 90, by_working_set[0], ""),
        ("4c", "working set where it saves most", "Ki pages", 128, by_working_set[1], ""),
        ("5a", "dedu costs more than gram at factor 1", "%", 5,
         increase(rows.pairs("5a", "dedu", "gram"), 1), ""),
        ("5a", "factor from which the data fits", "", 5, rows.fits_from("5a", "dedu"), ""),
        ("5a", "dedu costs less than gram, at most", "%", 81,
         most_saved(rows.pairs("5a", "dedu", "gram"))[0], NO_PLACE),
        ("5b", "device memory from which the working set fits", "Ki pages", NOT_GIVEN,
         rows.fits_from("5b", "dedu"), "640 / 4 - 64 = 96 should do"),
        ("5c", "utility of dedu above gram's", "", NOT_GIVEN,
         above(rows.pairs("5c", "dedu", "gram")), "it is above, says the text, without numbers"),
        ("5c", "utility of dedu goes down as device memory grows", "", NOT_GIVEN,
         steps_down(rows.curve("5c", "dedu")), "it goes down, says the text, without numbers"),
        ("5d", "share of updates between which gram begins to cost less than dedu", "%", [32, 64],
         crossing(rows.pairs("5d", "dedu", "gram")), ""),
        ("6", "sharing ratio with device memory, at most", "%", 40,
         100 * max(sharing.values()) if sharing else None,
         "of traces from Xen, which are not to be had"),
        ("6", "sharing ratio without it, at most", "%", NOT_GIVEN,
         100 * max(alone.values()) if alone else None, ""),
        ("6", "dedu costs less than native, at most", "%", 68,
         most_saved(rows.pairs("6", "dedu", "native"))[0],
         "of traces from Xen, which are not to be had"),
    ]
    return [{"figure": figure, "what": what, "unit": unit, "paper": paper,
             "ours": round(ours, 2) if isinstance(ours, float) else ours, "note": note}
            for figure, what, unit, paper, ours, note in said]


def table(beside):
    lines = [f"{'figure':<8}{'what':<68}{'paper':>12}{'ours':>16}"]
    for one in beside:
        shown = ["-" if value is None else "{} to {}".format(*value) if isinstance(value, list)
                 else str(value)
                 for value in (one["paper"], one["ours"])]
        unit = f", {one['unit']}" if one["unit"] else ""
        lines.append(f"{one['figure']:<8}{one['what'] + unit:<68}{shown[0]:>12}{shown[1]:>16}")
    return "\n".join(lines)
