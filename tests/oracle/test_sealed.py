"""A sealed value gives nothing away to a careless user."""

import copy
import json
import math
import operator
import pickle
import pprint
import statistics

import numpy as np
import pytest
import torch

from privopt.losses import Huber, Logistic
from privopt.mechanisms.maps import Scale
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds, Sealed, Sensitivity
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused

SECRET = 0.4142135


@pytest.fixture
def oracle():
    return Oracle.over(
        np.array([[SECRET, 0.0], [0.0, SECRET]]),
        np.array([1.0, 1.0]),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
    )


@pytest.fixture
def sealed(oracle):
    return oracle.everything().ask(ClippedGradient(Logistic(), 1.0))


OTHERS = {"number": 2.0, "integer": 3, "numpy number": np.float64(2.0), "array": np.ones(2)}
BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.matmul,
    operator.pow,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.iadd,
    operator.imul,
    divmod,
]
SINGLE = {
    "np.asarray": np.asarray,
    "np.array": np.array,
    "np.asarray with a type": lambda s: np.asarray(s, dtype=float),
    "np.array in a list": lambda s: np.array([s], dtype=float),
    "np.copy": np.copy,
    "np.sum": np.sum,
    "np.mean": np.mean,
    "np.isfinite": np.isfinite,
    "np.sign": np.sign,
    "np.abs": np.abs,
    "np.linalg.norm": np.linalg.norm,
    "np.concatenate": lambda s: np.concatenate([s, s]),
    "np.allclose": lambda s: np.allclose(s, s),
    "np.savetxt": lambda s: np.savetxt("/dev/null", s),
    "torch.as_tensor": torch.as_tensor,
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "not": operator.not_,
    "if": lambda s: 1 if s else 0,
    "index": operator.index,
    "range": range,
    "round": round,
    "floor": math.floor,
    "trunc": math.trunc,
    "sqrt": math.sqrt,
    "abs": abs,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "iter": iter,
    "list": list,
    "tuple": tuple,
    "set": lambda s: {s},
    "dict key": lambda s: {s: 1},
    "unpack": lambda s: [*s],
    "next": next,
    "reversed": reversed,
    "sorted": sorted,
    "zip": lambda s: list(zip(s, s, strict=True)),
    "max": max,
    "max of two": lambda s: max(s, 0.0),
    "sum": sum,
    "mean": statistics.mean,
    "len": len,
    "item": lambda s: s[0],
    "slice": lambda s: s[:],
    "set item": lambda s: operator.setitem(s, 0, 1.0),
    "contains": lambda s: SECRET in s,
    "in a list": lambda s: s in [0.0],
    "hash": hash,
    "format": format,
    "f-string": lambda s: f"{s}",
    "f-string with a format": lambda s: f"{s:.3f}",
    "percent": lambda s: "%f" % s,  # noqa: UP031
    "pickle": pickle.dumps,
    "old pickle": lambda s: pickle.dumps(s, protocol=0),
    "pickle in a list": lambda s: pickle.dumps([s]),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy in a dict": lambda s: copy.deepcopy({"a": s}),
    "json": json.dumps,
    "vars": vars,
    "call": lambda s: s(),
    "attribute T": lambda s: s.T,
    "attribute shape": lambda s: s.shape,
    "tolist": lambda s: s.tolist(),
    "new attribute": lambda s: setattr(s, "note", 1),
    "bytes": bytes,
    "with": lambda s: s.__enter__(),
    "key None": lambda s: s.open(None),
    "no key": lambda s: s.open(),
    "another key": lambda s: s.open(object()),
}


def refuses(action):
    """Refused, without a trace of the payload in the error or what stands behind it."""
    with pytest.raises((Refused, TypeError, AttributeError)) as caught:
        action()
    error, texts = caught.value, []
    while error is not None:
        texts.append(repr(error) + str(error.args))
        error = error.__cause__ or error.__context__
    assert not any(digit in text for text in texts for digit in ("414213", "207106"))


@pytest.mark.parametrize("action", SINGLE.values(), ids=[*SINGLE])
def test_a_careless_use_is_refused(sealed, action):
    refuses(lambda: action(sealed))


@pytest.mark.parametrize("other", OTHERS.values(), ids=[*OTHERS])
@pytest.mark.parametrize("operation", BINARY, ids=[f.__name__ for f in BINARY])
def test_arithmetic_and_comparison_are_refused_on_both_sides(sealed, operation, other):
    refuses(lambda: operation(sealed, other))
    refuses(lambda: operation(other, sealed))
    refuses(lambda: operation(sealed, sealed))


def test_numpy_finds_it_equal_to_nothing(sealed):
    """array_equal swallows the refusal; what it says then must not depend on the payload."""
    assert not np.array_equal(sealed, sealed.open(KEY))
    assert not np.array_equal(sealed, np.zeros(2))


def test_a_function_payload_is_as_closed(oracle):
    sealed = oracle.everything().function(Logistic())
    for action in SINGLE.values():
        refuses(lambda action=action: action(sealed))


def test_printing_shows_nothing_of_the_data(oracle, sealed):
    things = [oracle, oracle.everything(), sealed, oracle.everything().function(Logistic())]
    texts = [f(thing) for thing in things for f in (repr, str, pprint.pformat)]
    texts += [str([sealed]), f"{[sealed]}", str(sealed.sensitivity), repr(Sealed), sealed.__doc__]
    assert not any("414213" in text or "207106" in text for text in texts)
    assert repr(sealed) == repr(sealed.through(Scale(3.0)))


def test_only_an_oracle_makes_a_sealed_value(sealed):
    for key in (None, object(), "KEY", sealed.sensitivity):
        with pytest.raises(Refused):
            Sealed(key, np.zeros(2), Sensitivity("l2", 1.0, 1.0))
    with pytest.raises(TypeError):
        Sealed(np.zeros(2), Sensitivity("l2", 1.0, 1.0))


@pytest.mark.parametrize("norm", ["l1", "linf", "coordinates", "function"])
def test_a_map_for_another_norm_is_refused(sealed, norm):
    with pytest.raises(Refused, match=f"bounded in {norm}"):
        sealed.through(Scale(2.0, norm_in=norm))


def test_a_plain_function_is_not_a_map(sealed):
    seen = []
    refuses(lambda: sealed.through(lambda payload: seen.append(payload)))
    assert seen == []


def test_the_sensitivity_of_an_image_keeps_everything_but_the_radius(oracle):
    sealed = oracle.poisson(0.5).ask(ClippedGradient(Logistic(), 0.3))
    image = sealed.through(Scale(-2.0))
    assert (image.sensitivity.radius, image.sensitivity.single) == (0.6, 0.6)
    assert (sealed.sensitivity.radius, sealed.sensitivity.single) == (0.3, 0.3)
    for name in ("norm", "cells", "view", "sampling", "running_sum", "facts"):
        assert getattr(image.sensitivity, name) == getattr(sealed.sensitivity, name)


@pytest.mark.parametrize(
    ("neighbouring", "factor"), [("zero_out", 1), ("add_remove", 1), ("replace_one", 2)]
)
def test_reach_counts_the_relation_once(neighbouring, factor):
    view = Oracle.over(
        np.ones((3, 2)),
        np.ones(3),
        neighbouring=neighbouring,
        bounds=RowBounds(0.8, 0.6),
        source=SeededSource(0),
    ).everything()
    sensitivity = view.ask(ClippedGradient(Logistic(), 0.3)).sensitivity
    assert (sensitivity.radius, sensitivity.single) == (factor * 0.3, 0.3)
    sensitivity = view.function(Huber(2.5)).sensitivity
    assert sensitivity.norm == "function"
    assert sensitivity.facts.lipschitz == pytest.approx(2.5)  # width times hypot(0.8, 0.6) = 1
    assert sensitivity.facts.smoothness == pytest.approx(1.0)
    assert sensitivity.facts.one_signed is False
    assert sensitivity.radius == factor * sensitivity.facts.lipschitz
    assert sensitivity.single == sensitivity.facts.lipschitz
    assert view.function(Logistic()).sensitivity.facts.one_signed is True
