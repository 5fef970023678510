"""Affine expressions, conditions and extremes."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.affine import Affine, greatest, least, symbols

P, M, r = symbols("P M r")
NUMBERS = st.integers(-5, 5)
SIZES = st.fixed_dictionaries({"P": NUMBERS, "M": NUMBERS, "r": NUMBERS})
EXPRESSIONS = st.builds(lambda a, b, c, d: a * P + b * M + c * r + d, NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@given(EXPRESSIONS, EXPRESSIONS, NUMBERS, SIZES)
def test_arithmetic_is_that_of_the_values(left, right, factor, sizes):
    a, b = left.value(sizes), right.value(sizes)
    assert (left + right).value(sizes) == a + b
    assert (left - right).value(sizes) == a - b
    assert (factor - left * factor).value(sizes) == factor - a * factor
    assert (left < right).holds(sizes) == (a < b)
    assert (left > right).holds(sizes) == (a > b)
    assert (left <= right).holds(sizes) == (a <= b)
    assert (left >= right).negated.holds(sizes) == (a < b)


@given(EXPRESSIONS, EXPRESSIONS)
def test_equal_expressions_are_equal_however_they_were_made(left, right):
    assert left + right - right == left
    assert hash(left + right) == hash(right + left)
    assert (left <= right).negated.negated == (left <= right)


@given(EXPRESSIONS, EXPRESSIONS, SIZES)
def test_substitution_is_evaluation_in_two_steps(outer, inner, sizes):
    assert outer.substitute({"r": inner}).value(sizes) == outer.value({**sizes, "r": inner.value(sizes)})


@given(EXPRESSIONS, SIZES)
def test_text_reads_as_the_expression(expression, sizes):
    text = str(expression)
    for number, symbol in product(range(10), "PMr"):
        text = text.replace(f"{number}{symbol}", f"{number}*{symbol}")
    for number in range(10):
        text = text.replace(f"{number}(", f"{number}*(")
    assert eval(text, dict(sizes)) == expression.value(sizes)


def test_text():
    q, h, m, i = symbols("q h m i")
    assert str(m - 2 * q + h + 1) == "m-2q+h+1"
    assert str(1 - h + q) == "q-h+1"
    assert str(h - q) == "h-q"
    assert str(-h) == "-h"
    assert str(h - h) == "0"
    assert str(3 * q - 6) == "3(q-2)"
    assert str(2 * q >= i + 1) == "2q >= i+1"
    assert str(q >= 1) == "q >= 1"
    assert str(q <= 0) == "0 >= q"
    assert str(q + i <= 3) == "3 >= q+i"


@given(st.lists(EXPRESSIONS, min_size=1, max_size=3), SIZES)
def test_cases_cover_all_sizes_and_agree(options, sizes):
    for extreme in (least(*options), greatest(*options), greatest(0, least(*options))):
        values = {case.value.value(sizes) for case in extreme.cases() if all(c.holds(sizes) for c in case.where)}
        assert values == {extreme.value(sizes)}


def test_cases_of_an_expression_are_one():
    assert M.cases() == (((), M),)
    assert greatest(0, M - P).symbols == {"M", "P"}


def test_conditions_are_not_chained_by_mistake():
    with pytest.raises(TypeError, match="neither true nor false"):
        assert 0 <= r < P


def test_coefficients():
    assert (2 * P - M).coefficient("P") == 2
    assert Affine((("P", 1), ("P", -1)), 3) == Affine((), 3)
