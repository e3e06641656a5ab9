"""The answer of a comparison in words: which run is more robust, under which noise, and how sure.

Every sentence follows from the verdicts of the rows. Verdicts of opposite directions are in the first
sentence, whichever row they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nppr.compare.compare_settings import letter
from nppr.compare.comparison import SIGN_TEST, Compared, Difference, Entry
from nppr.core.tally import Metric
from nppr.report.number import MERGED
from nppr.statistics.intervals import student_quantile

ORDER = (Metric.NPPR, Metric.PR, Metric.AR, Metric.CORRUPTION)
"""Which row an answer names first: the first of these with a verdict."""

UNDER = {
    Metric.AR: "the attack {source}",
    Metric.NPPR: "the worst noise found ({source})",
    Metric.PR: "the noise {source}",
    Metric.CORRUPTION: "the corruption {source}",
}
EFFORT = (
    "Verdicts on NPPR and AR are about the noise and attacks found with the stated effort, not about"
    " the worst case."
)

SMALLEST_P = 1e-12
"""The smallest p-value that is printed."""

REALISTIC = 100
"""How many times the inputs of a run a reader may be told to assess."""

Row = tuple[Compared, Difference]


def answer_of(results: Sequence[Compared], entries: Sequence[Entry]) -> str:
    """Return the answer: who is more robust under which noise, or that no difference is shown."""
    if len(entries) == 1:
        return f"{len(entries[0].runs)} seeds of {entries[0].name}: nothing to compare with."
    rows = _rows(results)
    if not rows:
        clean = _clean_sentence(results, len(entries))
        return f"No robustness number of these runs can be compared. {clean}".strip()
    shown = [row for row in rows if row[1].separated]
    opposite = _opposite(shown)
    if opposite:
        return _both(opposite, named=len(entries) > 2)
    if len(entries) > 2:
        return _ranked(shown, len(entries))
    if not shown:
        return f"No difference in robustness is shown: under {_under(rows[0])}, {_tied(rows[0])}."
    return f"{_name(shown[0])} is more robust under {_under(shown[0])}: {_counted(shown[0])}."


def remarks_of(
    results: Sequence[Compared], entries: Sequence[Entry], confidence: float
) -> Iterator[str]:
    """Yield what a reader must know besides the answer: what was not compared comes first."""
    yield from dict.fromkeys(result.incomparable for result in results if result.incomparable)
    rows = _rows(results)
    if any(result.metric.is_searched for result, _ in rows):
        yield EFFORT
    if not rows:
        return
    if len(entries) == 2:
        yield _all_rows(rows)
        number = rows[0][1].inputs
        yield (
            f"Robustness is compared on the {number:,} inputs that both classify correctly without"
            " noise."
        )
    else:
        yield (
            "Two runs are compared on the inputs that both classify correctly without noise. The table"
            " of differences has all pairs."
        )
    yield from filter(None, [_clean_sentence(results, len(entries))])
    if not any(found.separated for _, found in rows):
        yield _what_helps(rows, confidence)


def p_text(p: float, name: str = "p = ") -> str:
    """Return a p-value as it is printed; small ones are rounded up to a power of ten.

    >>> p_text(0.0342), p_text(3e-9), p_text(0.5, name="")
    ('p = 0.034', 'p < 1e-8', '0.5')
    """
    if p >= 1e-3:
        return f"{name}{p:.2g}"
    power = math.ceil(math.log10(max(p, SMALLEST_P)))
    return f"{name.replace('=', '<') or '< '}1e{power}"


def _rows(results: Sequence[Compared]) -> list[Row]:
    """The differences in robustness, in the order in which an answer names them."""
    return [
        (result, found)
        for metric in ORDER
        for result in results
        if result.metric is metric
        for found in result.differences
    ]


def _name(row: Row) -> str:
    return letter(row[1].better)


def _under(row: Row) -> str:
    result = row[0]
    if result.source == MERGED:
        return "the attacks and noise that were tried, together"
    return UNDER[result.metric].format(source=result.source)


def _counted(row: Row) -> str:
    """The inputs behind a verdict; the size, if an input has more than one outcome."""
    found = row[1]
    better, worse = found.first_better, found.second_better
    if found.better != found.first:
        better, worse = worse, better
    points = f"{100 * abs(found.value):.1f} points on average"
    p = p_text(found.adjusted_p_value)  # the one that decides
    if better < worse:
        return f"{points}, although only {better:,} inputs are better and {worse:,} worse ({p})"
    size = "" if found.method == SIGN_TEST else f", {points}"
    return f"{better:,} inputs better, {worse:,} worse{size} ({p})"


def _tied(row: Row) -> str:
    found = row[1]
    first, second = letter(found.first), letter(found.second)
    text = (
        f"{first} is better on {found.first_better:,} inputs and {second} on"
        f" {found.second_better:,} ({p_text(found.p_value)}"
    )
    if found.p_value < 1 - found.confidence:
        text += f", and {found.adjusted_p_value:.2g} after correction for all rows"
    return text + ")"


def _opposite(shown: Sequence[Row]) -> list[tuple[Row, Row]]:
    """For each pair of entries with verdicts of both directions the first row of either."""
    found = []
    for pair in dict.fromkeys((each.first, each.second) for _, each in shown):
        firsts: dict[int, Row] = {}
        for row in shown:
            if (row[1].first, row[1].second) == pair:
                firsts.setdefault(row[1].better, row)
        if len(firsts) == 2:
            one, other = firsts.values()
            found.append((one, other))
    return found


def _both(opposite: Sequence[tuple[Row, Row]], *, named: bool) -> str:
    """Verdicts of opposite directions; `named` says which other entry is meant."""
    parts = []
    for one, other in opposite:
        names = _name(one), _name(other)
        than = (f" than {names[1]}", f" than {names[0]}") if named else ("", "")
        parts.append(
            f"{names[0]} is more robust{than[0]} under {_under(one)},"
            f" {names[1]}{than[1]} under {_under(other)}"
        )
    text = f"The order depends on the noise: {'; '.join(parts)}."
    if named:
        return text
    return " ".join([text, *(f"{_name(row)}: {_counted(row)}." for row in opposite[0])])


def _ranked(shown: Sequence[Row], entries: int) -> str:
    """Three or more entries: who leads in the first row with a verdict."""
    if not shown:
        return f"No difference in robustness is shown between any two of the {entries} runs."
    result, under = shown[0][0], _under(shown[0])
    apart = [found for found in result.differences if found.separated]
    for name in dict.fromkeys(letter(found.better) for found in apart):
        beaten = [letter(found.better) for found in apart].count(name)
        if beaten == len([each for each in result.standings if each.rank is not None]) - 1:
            return f"{name} is more robust than all others under {under}."
    first = [letter(each.entry) for each in result.standings if each.rank == 1]
    return (
        f"No run is more robust than all others: under {under}, {len(apart)} of"
        f" {len(result.differences)} pairs are separated, and {_listed(first)} have rank 1."
    )


def _all_rows(rows: Sequence[Row]) -> str:
    """Count the rows with a verdict for either, and name those without one."""
    parts = []
    for at in (rows[0][1].first, rows[0][1].second):
        count = sum(each.separated and each.better == at for _, each in rows)
        parts += [f"{letter(at)} is more robust in {count}"] * (count > 0)
    undecided = [
        f"{each.metric.value} {each.source}" for each, found in rows if not found.separated
    ]
    if undecided:
        parts.append(f"{len(undecided)} not separated ({', '.join(undecided)})")
    return f"Rows on robustness, {len(rows)} in all: {'; '.join(parts)}."


def _clean_sentence(results: Sequence[Compared], entries: int) -> str:
    """The difference in clean accuracy, which is decided on all inputs."""
    for result in results:
        if result.metric is not Metric.ACCURACY or not result.differences:
            continue
        if entries > 2:
            apart = sum(each.separated for each in result.differences)
            return f"Clean accuracy: {apart} of {len(result.differences)} pairs are separated."
        (found,) = result.differences
        values = [
            f"{letter(each.entry)} {100 * each.value:.1f} %"
            for each in result.standings
            if each.value is not None
        ]
        first, second = letter(found.first), letter(found.second)
        verdict = f"{letter(found.better)} is more accurate" if found.separated else "not separated"
        return (
            f"Clean accuracy: {', '.join(values)}; {verdict} (only {first} is correct on"
            f" {found.first_better:,} inputs, only {second} on {found.second_better:,},"
            f" {p_text(found.p_value)})."
        )
    return ""


def _what_helps(rows: Sequence[Row], confidence: float) -> str:
    """How many inputs would show the observed difference of the first row, if it is real.

    The evidence of a test grows by about `mean^2 / (2 variance)` with each input, and all tests
    together need log(2 tests / error).
    """
    row = rows[0]
    found, ratio = row[1], math.inf
    if found.value and found.inputs > 1:
        t = student_quantile(found.confidence, found.inputs - 1)
        half = (found.approximate_high - found.approximate_low) / 2
        ratio = 2 * math.log(2 * len(rows) / (1 - confidence)) * (half / t / found.value) ** 2
    size = f"{100 * abs(found.value):.1f} points under {_under(row)}"
    if ratio > REALISTIC:
        ends = (100 * found.guaranteed_low, 100 * found.guaranteed_high)
        shown = "showing it takes too many inputs" if found.value else "there is nothing to show"
        return (
            f"The observed difference is {size}; {shown}. The true one lies"
            f" between {ends[0]:+.1f} and {ends[1]:+.1f} points (guaranteed)."
        )
    inputs = found.inputs * max(ratio, 1.5)
    digits = 10 ** (math.floor(math.log10(inputs)) - 1)
    return (
        f"More inputs would help (--inputs, --evaluate-all): a difference of {size}, if it is real,"
        f" needs about {math.ceil(inputs / digits) * digits:,} common inputs; these runs have"
        f" {found.inputs:,}."
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
