"""What exact samplers add to a guarantee is in every form of it, or the fit is refused."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from privopt import LogisticRegression, Refused
from privopt.privacy import Certificate
from privopt.report import card, findings
from tests.covering import covering

X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
Y = (X[:, 0] > 0).astype(int)
EPSILONS = [1.0, 50.0, 64.0, 100.0]


def made(epsilon, delta, discrete_noise, **options):
    return LogisticRegression(
        epsilon, delta, classes=[0, 1], random_state=0, discrete_noise=discrete_noise, **options
    )


OPTIONS = ({}, {"bounds": (-1, 1)}, {"solver": "noisy_gd"})


@pytest.mark.parametrize(
    ("epsilon", "delta", "options"), covering([*product(EPSILONS, (0.0, 1e-6), OPTIONS)]), ids=str
)
def test_no_form_of_a_certificate_leaves_out_what_the_numerics_add(epsilon, delta, options):
    for discrete_noise in (True, "auto"):
        model = made(epsilon, delta, discrete_noise, **options)
        try:
            found = model.fit(X, Y).privacy_
        except Refused:
            assert discrete_noise is True  # what the next test asks is said
            assert epsilon > 50
            continue
        adds = 0.0 if found.numerics is None else found.numerics["delta"]
        owed = adds if adds > max(1e-12, 1e-3 * delta) else 0.0
        assert found.delta >= delta + owed
        assert json.loads(found.to_json())["guarantee"]["delta"] == found.delta
        again = Certificate.from_json(found.to_json())
        assert again == found
        assert found.verify()
        headline = str(found).splitlines()[0]
        if owed:
            printed = float(headline.partition("delta=")[2].partition(")")[0])
            assert printed >= delta + adds
            assert found.epsilon_at(owed / 1e9) > found.epsilon_at(found.delta) * 0.8
        else:
            assert ("(pure)" in headline) == (delta == 0)
        text = card(findings(model))
        stated = float(text.partition("at delta ")[2].partition(",")[0])
        assert stated >= found.delta >= stated * 0.999
        if discrete_noise == "auto" and epsilon > 50:
            assert found.numerics is None
            assert "floating point in" in str(found)


def test_the_refusal_comes_before_data_is_touched():
    class Untouchable:
        shape, ndim, dtype = (300, 2), 2, np.dtype(float)

        def __len__(self):
            return 300

        def __array__(self, *args, **kwargs):
            raise AssertionError("read")

    from privopt import Budget, Problem, solve
    from privopt.losses import Logistic

    with pytest.raises(Refused, match="to delta"):
        solve(
            Problem(Logistic()),
            Untouchable(),
            Y,
            budget=Budget(100.0, 0.0),
            solver="objective_perturbation",
            discrete_noise=True,
        )
