"""Colours that everybody can tell apart: measured, not believed."""

from itertools import combinations, product

import pytest

from verifier.views.palette import COLOURS, THEMES

# What colour-blind people see of linear RGB, complete forms: Machado, Oliveira, Fernandes (2009), table of severity 1.
VISION = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# From linear RGB to the perceptual space OKLab: Ottosson (2020), "A perceptual color space for image processing".
CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
OKLAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def apart(one, other, vision):
    """Distance as seen, in hundredths of the way from black to white."""
    seen = [
        times(OKLAB, [max(part, 0) ** (1 / 3) for part in times(CONES, times(vision, linear(colour)))])
        for colour in (one, other)
    ]
    return 100 * sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


def contrast(one, other):
    """The contrast of WCAG 2.1: 4.5 is enough for text, 3 for shapes."""
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_are_told_apart(vision):
    colours = [colour for pair in COLOURS.values() for colour in pair]
    assert min(apart(one, other, VISION[vision]) for one, other in combinations(colours, 2)) > 12


def test_text_is_readable_on_every_block_and_ground():
    assert min(contrast(light, "#000000") for light, _ in COLOURS.values()) > 7
    assert min(contrast(dark, "#ffffff") for _, dark in COLOURS.values()) > 4.5
    for theme in THEMES.values():
        for ground, text in product(("paper", "panel"), ("ink", "muted", "critical", "chosen", "good", "doubt")):
            assert contrast(theme[ground], theme[text]) > 4.5
