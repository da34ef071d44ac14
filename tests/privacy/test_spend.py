"""Who pays for what: disjoint cells, ancestors, nested batches, running sums."""

import math
from collections import Counter

import numpy as np
import pytest

from privopt.privacy import Accountant, Event, Log, Refused, Sampling, Spend, charge_of, spend
from privopt.privacy.events import ROOT, RunningSumPath, RunningSumPosition
from privopt.privacy.kinds import BoundedRange, Concentrated, GaussianKind, ObjectiveGaussian, Pure
from privopt.privacy.spend import Step, covers


def log_of(*events):
    log = Log()
    for event in events:
        log.append(event)
    return log


def gaussian(mu, *cells, **more):
    return Event("gaussian", (GaussianKind(mu, mu),), cells=cells or (ROOT,), **more)


def squares(charge):
    """Sum of mu^2 of a charge of Gaussians: they compose exactly, so nothing else matters."""
    return sum(count * kind.mu**2 for step, count in charge.items() for kind in step.kinds)


# ------------------------------------------------------------------------------ the tree of cells
def test_disjoint_cells_compose_in_parallel():
    log = log_of(*(gaussian(0.5, (cell,)) for cell in range(7)))
    assert Accountant().epsilon(spend(log), 1e-6) == (
        Accountant().epsilon(charge_of(GaussianKind(0.5, 0.5)), 1e-6)
    )


def test_the_dearest_cell_counts():
    log = log_of(gaussian(0.3, (0,)), gaussian(0.4, (1,)), gaussian(0.4, (1,)), gaussian(0.5, (2,)))
    totals = {cell: squares(charge) for cell, charge in spend(log).leaves().items()}
    assert totals == pytest.approx({(0,): 0.09, (1,): 0.32, (2,): 0.25})
    assert [cell for cell, _ in spend(log).frontier()] == [(1,)]


def test_a_record_pays_for_every_ancestor_of_its_cell():
    log = log_of(
        gaussian(0.1),
        gaussian(0.2, (0,)),
        gaussian(0.3, (0, 0)),
        gaussian(0.5, (0, 1)),
        gaussian(0.7, (1,)),
        gaussian(0.1),
    )
    totals = {cell: squares(charge) for cell, charge in spend(log).leaves().items()}
    root = 2 * 0.01
    assert totals == pytest.approx(
        {(0, 0): root + 0.04 + 0.09, (0, 1): root + 0.04 + 0.25, (1,): root + 0.49}
    )


def test_a_missing_level_of_the_tree_is_no_escape():
    log = log_of(gaussian(0.5), gaussian(0.5, (3, 1, 4)))
    ((cell, charge),) = spend(log).leaves().items()
    assert cell == (3, 1, 4)
    assert squares(charge) == pytest.approx(0.5)


def test_one_release_that_touches_many_cells_is_charged_to_each():
    log = log_of(gaussian(0.5, (0,), (1,), (2,)), gaussian(0.5, (1,)))
    totals = {cell: squares(charge) for cell, charge in spend(log).leaves().items()}
    assert totals == pytest.approx({(0,): 0.25, (1,): 0.5, (2,): 0.25})


def test_random_trees_agree_with_a_record_by_record_sum():
    """Oracle: walk over the records at the bottom and add what touches each of them."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        events = []
        for _ in range(int(rng.integers(1, 12))):
            depth = int(rng.integers(0, 4))
            cell = tuple(int(i) for i in rng.integers(0, 2, depth))
            events.append((cell, float(rng.uniform(0.1, 1))))
        records = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
        worst = max(
            sum(mu**2 for cell, mu in events if record[: len(cell)] == cell) for record in records
        )
        found = spend(log_of(*(gaussian(mu, cell) for cell, mu in events)))
        assert max(squares(c) for c in found.leaves().values()) == pytest.approx(worst)
        assert max(squares(c) for _, c in found.frontier()) == pytest.approx(worst)


def test_an_empty_log_still_has_a_leaf():
    assert spend(Log()).leaves() == {ROOT: Counter()}
    assert spend(Log()).frontier() == [(ROOT, Counter())]


# ------------------------------------------------------------------------------ views
def test_questions_on_one_batch_are_one_step():
    half = Sampling(0.5)
    log = log_of(
        gaussian(0.3, view=1, sampling=half),
        gaussian(0.4, view=2, sampling=half),
        gaussian(0.6, view=1, sampling=half),
    )
    assert spend(log).cells[ROOT] == Counter(
        {
            Step(half, (GaussianKind(0.3, 0.3), GaussianKind(0.6, 0.6))): 1,
            Step(half, (GaussianKind(0.4, 0.4),)): 1,
        }
    )


def test_the_order_of_questions_on_a_batch_does_not_matter():
    half = Sampling(0.5)
    kinds = [(GaussianKind(0.6, 0.3),), (Pure(0.2),), (GaussianKind(0.1, 0.1), BoundedRange(0.4))]
    events = [Event("m", k, view=4, sampling=half) for k in kinds]
    assert spend(log_of(*events)) == spend(log_of(*events[::-1]))


def test_batches_of_different_cells_rates_or_numbers_do_not_nest():
    log = log_of(
        gaussian(0.3, (0,), view=1, sampling=Sampling(0.5)),
        gaussian(0.3, (1,), view=1, sampling=Sampling(0.5)),
        gaussian(0.3, (1,), view=2, sampling=Sampling(0.5)),
        gaussian(0.3, (1,), view=2, sampling=Sampling(0.25)),
    )
    cells = spend(log).cells
    assert sum(cells[(0,)].values()) == 1
    assert sum(cells[(1,)].values()) == 3
    assert all(len(step.kinds) == 1 for charge in cells.values() for step in charge)


def test_questions_on_all_records_compose_one_by_one():
    """No coin is shared, so one view of everything and many are the same."""
    one = spend(log_of(*(gaussian(0.5, view=1) for _ in range(4))))
    many = spend(log_of(*(gaussian(0.5, view=view) for view in range(4))))
    assert one == many
    assert squares(one.cells[ROOT]) == pytest.approx(1.0)


# ------------------------------------------------------------------------------ running sums
def running_sum(decays, radii, cells=None):
    """A path as a running sum writes it: total <- decay * total + new."""
    path = RunningSumPath()
    for index, (decay, radius) in enumerate(zip(decays, radii, strict=True)):
        before = path.log_decay[-1] if path.log_decay else 0.0
        path.log_decay.append(before + math.log(decay) if path.log_decay else 0.0)
        path.cells.append((index,) if cells is None else cells[index])
        path.radii.append(radius)
    return path


def on_lane(path, step, *kinds):
    return Event("running sum", kinds, cells=(), running_sum=RunningSumPosition(path, step))


def brute_force(decays, radii, cells, values):
    """How far one record of each cell moves each released sum, by running the sum: O(T^2)."""
    total = Counter()
    for cell in set(cells):
        moved = 0.0
        for step, (decay, radius, mine) in enumerate(zip(decays, radii, cells, strict=True)):
            moved = decay * moved + (radius if mine == cell else 0.0)
            total[cell] += sum((value * moved) ** 2 for value in values.get(step, ()))
    return total


def random_lane(seed, length=40):
    rng = np.random.default_rng(seed)
    decays, radii = rng.uniform(0.3, 1.0, length), rng.uniform(0.1, 2.0, length)
    values = {step: tuple(rng.uniform(0.1, 1.0, step % 3)) for step in range(length)}
    return decays, radii, [(i,) for i in range(length)], values


@pytest.mark.parametrize("seed", range(4))
def test_gaussian_releases_of_a_running_sum(seed):
    decays, radii, cells, values = random_lane(seed)
    path = running_sum(decays, radii)
    log = log_of(
        *(on_lane(path, step, GaussianKind(v, v)) for step, vs in values.items() for v in vs)
    )
    found = {cell: squares(charge) for cell, charge in spend(log).cells.items()}
    truth = brute_force(decays, radii, cells, values)
    assert found == pytest.approx({cell: v for cell, v in truth.items() if v > 0}, rel=1e-10)


@pytest.mark.parametrize("seed", range(2))
def test_selections_on_a_running_sum_are_concentrated(seed):
    """eta scales with the movement, rho = eta^2 / 8 with its square."""
    decays, radii, cells, values = random_lane(seed)
    path = running_sum(decays, radii)
    log = log_of(*(on_lane(path, step, BoundedRange(v)) for step, vs in values.items() for v in vs))
    truth = brute_force(decays, radii, cells, values)
    for cell, charge in spend(log).cells.items():
        (step,) = charge
        (kind,) = step.kinds
        assert isinstance(kind, Concentrated)
        assert kind.rho == pytest.approx(truth[cell] / 8, rel=1e-10)


def test_both_on_one_sum_and_two_sums_side_by_side():
    one, other = running_sum([1.0, 0.5], [1.0, 1.0]), running_sum([1.0, 0.1], [2.0, 1.0])
    log = log_of(
        on_lane(one, 0, GaussianKind(0.2, 0.2)),
        on_lane(one, 1, BoundedRange(0.4)),
        on_lane(other, 1, GaussianKind(0.3, 0.3)),
        gaussian(0.6, (0,)),
    )
    charge = spend(log).cells[(0,)]
    kinds = [kind for step, count in charge.items() for kind in step.kinds * count]
    assert sum(k.mu**2 for k in kinds if isinstance(k, GaussianKind)) == pytest.approx(
        0.2**2 + (0.3 * 0.2) ** 2 + 0.6**2
    )
    (rho,) = [k.rho for k in kinds if isinstance(k, Concentrated)]
    assert rho == pytest.approx((0.4 * 0.5) ** 2 / 8)


def test_a_cell_pays_only_for_what_is_released_after_it_entered():
    path = running_sum([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    cells = spend(log_of(on_lane(path, 0, GaussianKind(0.5, 0.5)))).cells
    assert set(cells) == {(0,)}


@pytest.mark.parametrize("cells", [[(0,), (0,)], [(), (0,)], [(0,), ()]])
def test_a_record_that_enters_a_sum_twice_moves_it_twice(cells):
    """Radii add before they are squared: mu = 0.5 (1 + 1), not 0.5 sqrt(2). Or it is refused."""
    path = running_sum([1.0, 1.0], [1.0, 1.0], cells)
    try:
        found = spend(log_of(on_lane(path, 1, GaussianKind(0.5, 0.5))))
    except Refused:
        return
    assert max(squares(c) for c in found.leaves().values()) >= 1.0 - 1e-12


def test_a_long_sum_with_strong_decay_is_still_charged():
    """Old cells fade away below any number; the charge of the young ones is geometric."""
    length, decay = 2000, 0.5
    path = running_sum([decay] * length, [1.0] * length)
    log = log_of(*(on_lane(path, step, GaussianKind(0.1, 0.1)) for step in range(length)))
    found = spend(log).cells
    for step in (0, 1000, length - 60):
        assert squares(found[(step,)]) == pytest.approx(0.01 / (1 - decay**2), rel=1e-9)
    assert squares(found[(length - 1,)]) == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize("kind", [Pure(1.0), Concentrated(0.1), ObjectiveGaussian(1, 0.1, True)])
def test_a_running_sum_refuses_other_mechanisms_by_name(kind):
    with pytest.raises(Refused, match=kind.name):
        spend(log_of(on_lane(running_sum([1.0], [1.0]), 0, kind)))


# ------------------------------------------------------------------------------ domination
def test_covers_more_of_the_same():
    few, many = charge_of(Pure(0.5), count=2), charge_of(Pure(0.5), count=3)
    assert covers(many, few)
    assert covers(many, many)
    assert not covers(few, many)
    assert covers(few, Counter())
    assert not covers(Counter(), few)


def test_covers_by_totals_where_totals_decide():
    """Three of 0.5 (0.75) against one of 0.86 (0.7396) and one of 0.87 (0.7569)."""
    three = charge_of(GaussianKind(0.5, 0.5), count=3)
    assert covers(three, charge_of(GaussianKind(0.86, 0.86)))
    assert not covers(three, charge_of(GaussianKind(0.87, 0.87)))
    assert covers(charge_of(Concentrated(0.2)), charge_of(Concentrated(0.05), count=4))
    assert not covers(charge_of(Concentrated(0.2)), charge_of(Concentrated(0.06), count=4))


def test_covers_never_trades_one_kind_for_another():
    assert not covers(charge_of(GaussianKind(5, 5)), charge_of(Concentrated(1e-3)))
    assert not covers(charge_of(Concentrated(5)), charge_of(GaussianKind(1e-3, 1e-3)))
    assert not covers(charge_of(Pure(5)), charge_of(GaussianKind(1e-3, 1e-3)))
    both = charge_of(GaussianKind(1, 1), Concentrated(1))
    assert covers(both, charge_of(GaussianKind(0.5, 0.5), Concentrated(0.5)))
    assert not covers(both, charge_of(GaussianKind(0.5, 0.5), Concentrated(1.5)))


def test_a_sampled_step_is_never_covered_by_a_total():
    sampled = Counter({Step(Sampling(0.5), (GaussianKind(0.5, 0.5),)): 1})
    assert not covers(sampled, charge_of(GaussianKind(0.1, 0.1)))
    assert covers(sampled, sampled)


def test_what_is_covered_costs_no_more():
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(200):
        charges = []
        for _ in range(2):
            charge = Counter()
            for _ in range(int(rng.integers(1, 4))):
                value = float(rng.choice([0.2, 0.3, 0.5]))
                kind = GaussianKind(value, value) if rng.integers(2) else Concentrated(value)
                charge += charge_of(kind, count=int(rng.integers(1, 3)))
            charges.append(charge)
        large, small = charges
        if covers(large, small):
            covered += 1
            low, high = (Accountant().epsilon(charge, 1e-5) for charge in (small, large))
            assert low <= high * (1 + 1e-9)
    assert covered > 20


def test_within_is_cell_by_cell():
    plan = spend(log_of(gaussian(0.5, (0,)), gaussian(0.5, (1,))))
    assert spend(log_of(gaussian(0.5, (0,)))).at_most(plan)
    assert spend(log_of(gaussian(0.4, (0,)), gaussian(0.3, (1,)))).at_most(plan)
    assert plan.at_most(plan)
    assert not spend(log_of(gaussian(0.5, (0,)), gaussian(0.1, (0,)))).at_most(plan)
    assert not spend(log_of(gaussian(0.1, (2,)))).at_most(plan)
    assert not spend(log_of(gaussian(0.1))).at_most(plan)  # the root is everybody
    assert spend(Log()).at_most(plan)


def test_the_frontier_drops_what_is_covered_and_nothing_else():
    cells = {
        (0,): charge_of(GaussianKind(0.5, 0.5)),
        (1,): charge_of(GaussianKind(0.6, 0.6)),
        (2,): charge_of(Pure(0.2)),
        (3,): charge_of(Pure(0.2), count=2),
        (4,): charge_of(GaussianKind(0.1, 0.1), Pure(0.1)),
        (5,): charge_of(GaussianKind(0.6, 0.6)),
    }
    kept = dict(Spend(cells).frontier())
    assert set(kept) == {(1,), (3,), (4,)}
    for charge in cells.values():
        assert any(covers(other, charge) for other in kept.values())


def test_the_frontier_has_the_guarantee_of_all_leaves():
    rng = np.random.default_rng(7)
    log = Log()
    for _ in range(60):
        cell = (int(rng.integers(6)), int(rng.integers(2)))[: int(rng.integers(0, 3))]
        log.append(gaussian(float(rng.choice([0.1, 0.2])), cell))
    total = spend(log)
    assert len(total.frontier()) < len(total.leaves())
    all_leaves = max(Accountant().epsilon(charge, 1e-6) for charge in total.leaves().values())
    assert Accountant().epsilon(total, 1e-6) == pytest.approx(all_leaves, rel=1e-12)
