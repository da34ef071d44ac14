"""Parameters are declared once: the constructor, scikit-learn and the page agree on them."""

import inspect
import re

import pytest
from sklearn.base import clone

from privopt import estimators
from privopt.estimators.parameters import Declared, fitted, parameter

KINDS = [kind for name in estimators.__all__ if inspect.isclass(kind := getattr(estimators, name))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_parameter_is_described_and_nothing_else(kind):
    body = inspect.cleandoc(kind.__doc__).split("Parameters\n----------\n")[1]
    body = re.split(r"^\S.*\n-+$", body, maxsplit=1, flags=re.M)[0]
    described = re.findall(r"^(\w+) : .*(?:\n .+)*", body, re.M)
    assert sorted(described) == sorted(inspect.signature(kind).parameters)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_page_names_the_default(kind):
    for name, value in inspect.signature(kind).parameters.items():
        stated = re.search(rf"^{name} : .*default=(.+)$", inspect.cleandoc(kind.__doc__), re.M)
        if stated:
            assert eval(stated[1]) == value.default, name


class First(Declared):
    """One.

    Parameters
    ----------
    epsilon : float
        Loss.
    size : int
        Of the first.

    Attributes
    ----------
    found_ : int
        By the first.
    kept_ : int
    """

    epsilon: float = parameter(default=1.0, kw_only=False)
    size: int = parameter(default=3)
    found_: int = fitted()


class Second(First):
    """Two.

    Parameters
    ----------
    size : int
        Of the second.
    weight : float
        Further.

    Attributes
    ----------
    found_ : int
        By the second.

    Examples
    --------
    >>> Second()
    """

    size: int = parameter(default=5)
    weight: float = parameter(default=0.5)


def test_what_is_special_comes_first_and_decides():
    assert str(inspect.signature(Second)) == "(epsilon=1.0, *, size=5, weight=0.5)"
    made = Second(2.0, weight=1.0)
    assert vars(made) == {"epsilon": 2.0, "size": 5, "weight": 1.0}
    assert "Of the second" in Second.__doc__
    assert "Of the first" not in Second.__doc__
    places = [
        Second.__doc__.index(text) for text in ("epsilon :", "Attributes", "kept_", "Examples")
    ]
    assert places == sorted(places)
    assert "By the first" not in Second.__doc__
    assert not hasattr(made, "found_")


def test_a_wrong_name_is_one_sentence():
    with pytest.raises(TypeError, match="Second: got an unexpected keyword argument 'wait'"):
        Second(wait=1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        Second(1.0, 2)


def test_copies_have_the_same_parameters():
    model = estimators.Ridge(2.0, alpha=3.0, target_bounds=(0, 1))
    assert clone(model).get_params() == model.get_params()
