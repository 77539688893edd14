"""The colours of the style sheet, by computation: contrast, colour blindness, and equal hues of both themes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import combinations, pairwise

import pytest

STYLE = (resources.files("gateway.console") / "static/style.css").read_text()
TOKEN = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
SERIES = [*(f"s{n}" for n in range(1, 9)), "other"]
STATES = ["good", "warn", "bad"]
TEXTS = ["ink", "faint", "accent", *STATES]
GROUNDS = ["page", "panel", "sunk", "rail", "hover", "tint", "bad-tint", "warn-tint", "good-tint"]
THEMES = {"light": 0, "dark": 1}
Triple = tuple[float, float, float]
# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
BLINDNESS: Mapping[str, Sequence[Triple]] = {
    "none": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "protan": [
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ],
    "deutan": [
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ],
    "tritan": [
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ],
}


def tokens(theme: str) -> dict[str, Triple]:
    return {name: linear(pair[THEMES[theme]]) for name, *pair in TOKEN.findall(STYLE)}


def linear(hexadecimal: str) -> Triple:
    red, green, blue = (int(hexadecimal[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def contrast(one: Triple, other: Triple) -> float:
    dark, light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (one, other))
    return (light + 0.05) / (dark + 0.05)


def oklab(colour: Triple) -> Triple:
    red, green, blue = colour
    long = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    middle = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def seen(colour: Triple, blindness: str) -> Triple:
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, colour, strict=True))))
        for row in BLINDNESS[blindness]
    )
    return red, green, blue


def distances(theme: str, blindness: str, pairs: Iterator[tuple[str, str]]) -> dict[str, float]:
    shown = {name: oklab(seen(colour, blindness)) for name, colour in tokens(theme).items()}
    return {f"{one} {other}": 100 * math.dist(shown[one], shown[other]) for one, other in pairs}


def hue(colour: Triple) -> float:
    _, a, b = oklab(colour)
    return math.degrees(math.atan2(b, a))


@pytest.mark.parametrize("theme", THEMES)
def test_contrast(theme: str) -> None:
    """Text has at least 4.5 on every ground. Series, edges and states have at least 3 on page and panel."""
    every = tokens(theme)
    texts = {
        f"{text} on {ground}": contrast(every[text], every[ground]) for text in TEXTS for ground in GROUNDS
    }
    texts |= {"on-accent": contrast(every["on-accent"], every["accent"])}
    assert {} == {pair: ratio for pair, ratio in texts.items() if ratio < 4.5}
    shapes = {
        f"{name} on {ground}": contrast(every[name], every[ground])
        for name in (*SERIES, "edge", *STATES)
        for ground in ("page", "panel")
    }
    assert {} == {pair: ratio for pair, ratio in shapes.items() if ratio < 3}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_series_are_distinct(theme: str, blindness: str) -> None:
    """
    Any two series colours differ by at least 6 in OKLab x 100, and by 12 for people with full vision. Neighbours in
    the order in which names get colours differ by at least 9.
    """
    every = distances(theme, blindness, combinations(SERIES, 2))
    assert {} == {pair: each for pair, each in every.items() if each < (12 if blindness == "none" else 6)}
    neighbours = distances(theme, blindness, pairwise(SERIES))
    assert {} == {pair: each for pair, each in neighbours.items() if each < 9}


def test_a_place_has_one_hue() -> None:
    """The hue of a series differs by at most 3 degrees between the themes."""
    light, dark = tokens("light"), tokens("dark")
    turns = {name: abs((hue(light[name]) - hue(dark[name]) + 180) % 360 - 180) for name in SERIES[:-1]}
    assert {} == {name: turn for name, turn in turns.items() if turn > 3}


def test_no_colour_is_named_outside_the_tokens() -> None:
    """The rules below the tokens name no colour, except black shadows. Scripts name none at all."""
    rules = TOKEN.sub("", STYLE)
    assert [] == re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[^{]*})|\brgba?\((?!0 0 0)[^)]*\)", rules)
    scripts = resources.files("gateway.console") / "static"
    texts = [
        path.read_text()
        for folder in ("lib", "pages")
        for path in (scripts / folder).iterdir()
        if path.name.endswith(".mjs")
    ]
    assert [] == [found for text in texts for found in re.findall(r"[\"'`]#[0-9a-fA-F]{6}[\"'`]", text)]
