"""Views and oracles: numbers, cells, refusals, and errors that carry no data."""

import copy
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, CountRecords, Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.events import ROOT

RELATIONS = ["zero_out", "replace_one", "add_remove"]
FORMS = {"dense": np.asarray, "sparse": sp.csr_array, "torch": torch.from_numpy}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=[*FORMS])


def oracle_over(X, neighbouring="zero_out", form=np.asarray, seed=0):
    return Oracle.over(
        form(X),
        np.ones(len(X)),
        neighbouring=neighbouring,
        bounds=RowBounds(100.0),
        source=SeededSource(seed),
    )


@dataclass(frozen=True)
class Fails:
    """A query that fails, and whose error quotes a row."""

    error: type[Exception] = ValueError
    norm: str = "l2"

    def radius(self):
        return 1.0

    def diameter(self):
        return 2.0

    def total(self, rows, at):
        try:
            _ = 1 / 0
        except ZeroDivisionError as cause:
            raise self.error(f"row 0 is {rows._X[0]!s}") from cause


@every_form
@pytest.mark.parametrize("error", [ValueError, Refused, MemoryError, FloatingPointError])
def test_an_error_inside_a_query_tells_nothing(form, error):
    view = oracle_over(np.array([[3.14159265, 2.0]]), form=form).everything()
    with pytest.raises(Refused) as caught:
        view.ask(Fails(error))
    assert str(caught.value) == "Fails could not be computed; details are withheld."
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert not hasattr(caught.value, "__notes__")


def test_the_text_of_a_failed_query_does_not_depend_on_the_data():
    texts = set()
    for X in (np.zeros((1, 2)), np.ones((50, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(Refused) as caught:
            oracle_over(X).everything().ask(Fails())
        texts.add(str(caught.value))
    assert len(texts) == 1


@pytest.mark.parametrize("at", [np.zeros(1), np.zeros(3), np.zeros((2, 1)), 0.0, [], np.zeros(0)])
def test_a_question_at_a_vector_of_another_length_is_refused(at):
    view = oracle_over(np.array([[3.14159265, 2.0]])).everything()
    with pytest.raises(ValueError, match="a vector of length 2") as caught:
        view.ask(ClippedGradient(Logistic(), 1.0), at)
    assert "3.14" not in str(caught.value)


def test_without_a_place_the_question_is_asked_at_zero():
    view = oracle_over(np.eye(2)).everything()
    query = ClippedGradient(Logistic(), 1.0)
    for at in (None, [0, 0], np.zeros(2, dtype=np.float32)):
        np.testing.assert_array_equal(view.ask(query, at).open(KEY), [-0.5, -0.5])


def test_a_view_has_no_length_and_no_rows():
    view = oracle_over(np.ones((3, 2))).everything()
    with pytest.raises(TypeError):
        len(view)
    with pytest.raises(TypeError):
        iter(view)
    public = {name for name in dir(view) if not name.startswith("_")}
    assert public == {"ask", "ask_all", "follow", "function", "coordinate_gradient"}


def test_an_oracle_is_neither_pickled_nor_copied():
    oracle = oracle_over(np.ones((3, 2)))
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(Refused):
            action(oracle)


def test_unknown_relations_are_refused():
    for word in ("bounded", "", None, "Zero_out"):
        with pytest.raises(ValueError, match="zero_out, replace_one, add_remove"):
            oracle_over(np.ones((1, 1)), neighbouring=word)


# ------------------------------------------------------------ numbers of views
def test_every_view_has_its_own_number():
    oracle = oracle_over(np.ones((12, 2)))
    views = [oracle.everything(), oracle.everything(), oracle.poisson(0.5), oracle.poisson(1.0)]
    for block in oracle.blocks(3):
        views += [block.everything(), block.poisson(0.3)]
        views += [inner.everything() for inner in block.blocks(2)]
    query = CountRecords()
    numbers = [view.ask(query).sensitivity.view for view in views]
    assert len(set(numbers)) == len(views)
    assert 0 not in numbers  # the number that an event has by default


def test_everything_asked_of_one_view_has_its_number():
    view = oracle_over(np.ones((12, 2))).poisson(0.5)
    sensitivities = [
        view.ask(CountRecords()).sensitivity,
        view.ask(ClippedGradient(Logistic(), 1.0)).sensitivity,
    ]
    sensitivities.append(view.function(Logistic()).sensitivity)
    assert len({sensitivity.view for sensitivity in sensitivities}) == 1
    assert {sensitivity.sampling.rate for sensitivity in sensitivities} == {0.5}


# ------------------------------------------------------------ blocks
def test_blocks_are_refused_where_positions_mean_nothing():
    for oracle in (
        oracle_over(np.ones((4, 1)), neighbouring="add_remove"),
        Oracle.empty(1, neighbouring="add_remove", bounds=RowBounds(1.0), source=SeededSource(0)),
    ):
        with pytest.raises(Refused, match="zero_out"):
            oracle.blocks(2)


@every_form
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("n", "k"), [(10, 1), (10, 3), (10, 10), (3, 7), (0, 2)])
def test_blocks_are_disjoint_and_cover_all(form, relation, n, k):
    """Row i is the i-th unit vector, so a block's total names its records."""
    oracle = oracle_over(np.eye(max(n, 1))[:n], relation, form)
    blocks = oracle.blocks(k)
    query = ClippedGradient(Logistic(), 1.0)
    totals = [block.everything().ask(query).open(KEY) for block in blocks]
    assert len(blocks) == k
    np.testing.assert_array_equal(sum(totals), np.full(max(n, 1), -0.5 if n else 0.0))
    assert all(set(np.unique(total)) <= {-0.5, 0.0} for total in totals)
    sizes = [block.everything().ask(CountRecords()).open(KEY)[0] for block in blocks]
    assert max(sizes) - min(sizes) <= 1
    cells = [block.everything().ask(query).sensitivity.cells for block in blocks]
    assert cells == [((i,),) for i in range(k)]
    assert oracle.everything().ask(query).sensitivity.cells == (ROOT,)
    assert {block.neighbouring for block in blocks} == {relation}


def test_blocks_of_blocks_are_paths():
    blocks = oracle_over(np.eye(8)).blocks(2)
    cells = [
        inner.poisson(0.5).ask(CountRecords()).sensitivity.cells[0]
        for block in blocks
        for inner in block.blocks(2)
    ]
    assert cells == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_number_of_blocks_must_be_positive():
    for k in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            oracle_over(np.ones((3, 1))).blocks(k)


# ------------------------------------------------------------ no data at all
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_empty_oracle_reaches_exactly_as_a_full_one(relation):
    """The dry run's reaches must equal the run's bit for bit."""
    bounds, source = RowBounds(0.7, 0.3), SeededSource(0)
    full = Oracle.over(
        np.random.default_rng(0).normal(size=(20, 4)),
        np.ones(20),
        neighbouring=relation,
        bounds=bounds,
        source=source,
    )
    empty = Oracle.empty(5, neighbouring=relation, bounds=bounds, source=source)
    assert full.dimension == empty.dimension == 5
    for ask in (
        lambda view: view.ask(ClippedGradient(Logistic(), 0.37), np.ones(5)),
        lambda view: view.ask(CountRecords()),
        lambda view: view.function(Logistic()),
    ):
        for make in (lambda o: o.everything(), lambda o: o.poisson(0.1)):
            assert ask(make(full)).sensitivity == ask(make(empty)).sensitivity
    if relation != "add_remove":
        for one, other in zip(full.blocks(3), empty.blocks(3), strict=True):
            query = CountRecords()
            assert (
                one.everything().ask(query).sensitivity == other.everything().ask(query).sensitivity
            )


def test_the_empty_oracle_answers_zero():
    empty = Oracle.empty(3, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0))
    for view in (empty.everything(), empty.poisson(0.2), empty.blocks(2)[1].poisson(0.1)):
        gradient = view.ask(ClippedGradient(Logistic(), 1.0), np.ones(3)).open(KEY)
        np.testing.assert_array_equal(gradient, np.zeros(3))
        assert view.ask(CountRecords()).open(KEY) == [0.0]
        objective = view.function(Logistic()).open(KEY)
        assert objective.value(np.ones(3)) == 0.0
        np.testing.assert_array_equal(objective.hessian(np.ones(3)), np.zeros((3, 3)))
        product = objective.hessian_product(objective.curvatures(np.ones(3)), np.ones(3))
        np.testing.assert_array_equal(product, np.zeros(3))


def test_an_empty_batch_is_released_with_noise_and_an_event_like_any_other():
    oracle, gate = oracle_over(np.ones((5, 2))), Gate(SeededSource(1))
    view = oracle.poisson(1e-9)
    value = gate.release(Gaussian(1.0), view.ask(ClippedGradient(Logistic(), 1.0)))
    assert len(gate.log) == 1
    assert gate.log[0].sampling.rate == 1e-9
    assert np.all(value != 0.0)


# ------------------------------------------------------------ a secret order
def payload_of(sealed):
    return sealed.open(KEY)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_a_shuffled_oracle_holds_the_same_records_in_another_order(neighbouring):
    oracle = oracle_over(np.eye(50), neighbouring=neighbouring)
    first, again = oracle.shuffled(), oracle.shuffled()
    orders = [payload_of(o.everything().function(Logistic())).rows for o in (first, again, oracle)]
    moved = [rows.part(0, 5).weighted_sum(np.zeros(50), lambda z, y, size: y) for rows in orders]
    np.testing.assert_array_equal(moved[0], moved[1])  # one order for all models
    assert not np.array_equal(moved[0], moved[2])
    whole = [rows.weighted_sum(np.zeros(50), lambda z, y, size: y) for rows in orders]
    np.testing.assert_allclose(whole[0], whole[2])
    assert first.shuffled() is first
    with pytest.raises(Refused, match="label the oracle, then shuffle"):
        first.labelled(np.ones(50))


def test_labels_of_other_models_follow_the_same_order():
    oracle = oracle_over(np.eye(20))
    y = np.where(np.arange(20) < 7, 1.0, -1.0)
    one, other = oracle.labelled(y).shuffled(), oracle.labelled(-y).shuffled()

    def weights(o):
        rows = payload_of(o.everything().function(Logistic())).rows
        one = [rows.part(i, i + 1).total(np.zeros(20), lambda z, y, s: y) for i in range(20)]
        return np.array(one)

    np.testing.assert_array_equal(weights(one), -weights(other))
    assert weights(one).sum() == 7 - 13


def test_an_order_means_nothing_under_add_remove():
    with pytest.raises(Refused, match="shifts when one is added or removed"):
        oracle_over(np.eye(3), neighbouring="add_remove").shuffled()


def test_records_are_cut_in_one_way_only():
    """Spend is a maximum over cells. With two cuts a record would pay in a cell of each: the last
    half of a cut in two and the last third of a cut in three share records, not cells."""
    oracle = oracle_over(np.eye(12))
    assert len(oracle.blocks(2)) == len(oracle.blocks(2)) == 2
    for other in (lambda: oracle.blocks(3), lambda: oracle.shuffled().blocks(2)):
        with pytest.raises(Refused, match="already cut"):
            other()
    with pytest.raises(Refused, match="already cut"):
        oracle.labelled(np.ones(12)).blocks(3)
    inner = oracle.blocks(2)[1]
    assert [len(part.blocks(2)) for part in inner.blocks(3)] == [2, 2, 2]
