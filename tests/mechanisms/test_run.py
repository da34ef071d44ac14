"""One run for everybody: declare, pay, read, release, certify, on every public road."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import privopt
from privopt.ledger import Dataset, Ledger
from privopt.losses import Logistic
from privopt.mechanisms import CorrelatedGaussian, Gate, Gaussian, Run, Steps, rehearsed
from privopt.noise import SecureSource, SeededSource, SilentSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds, Sealed
from privopt.oracle.made_up import made_up
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Accountant, Budget, Certificate, Log, Participation, Refused, spend
from privopt.privacy.factorizations import named
from privopt.problem import Problem
from tests.mechanisms.roads import NO_FIT, ROADS, travelled

ROOT = Path(privopt.__file__).parent
UNIT = Sensitivity("l2", 1.0, 1.0)


def ask(gate, source, times=1, multiplier=4.0):
    oracle = Oracle.over(
        np.full((4, 2), 0.3),
        np.ones(4),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=source,
    )
    for _ in range(times):
        sealed = oracle.everything().ask(ClippedGradient(Logistic(), 0.5))
        gate.release(Gaussian(multiplier), sealed)


def honest(budget=None, times=2, source=None, **more):
    declared = rehearsed(lambda gate, silent: ask(gate, silent, times))
    budget = Budget(5.0, 1e-5) if budget is None else budget
    return Run(budget, declared, source or SecureSource(), what="test", **more)


# ------------------------------------------------------------ the order
def test_a_run_is_declared_paid_read_released_and_certified():
    source = SecureSource()
    run = honest(source=source)
    run.pay(None)
    assert run.read(lambda: 7) == 7
    ask(run.gate, source, 2)
    made = run.certify()
    assert made.releases == run.released == 2
    assert made.private
    assert made.epsilon == Accountant().epsilon(spend(run.log), 1e-5) == run.epsilon()
    assert made.verify()


def test_nothing_is_read_or_released_before_it_is_paid():
    run = honest()
    with pytest.raises(Refused, match="call pay first"):
        _ = run.gate
    with pytest.raises(Refused, match="call pay first"):
        run.read(lambda: pytest.fail("data was read"))


def test_a_run_is_paid_once():
    run = honest()
    run.pay(None)
    with pytest.raises(Refused, match="paid once"):
        run.pay(None)


def test_more_than_the_budget_is_refused_before_it_can_be_paid():
    whole = honest().planned
    epsilon = Accountant().epsilon(whole, 1e-5)
    honest(Budget(epsilon, 1e-5))
    with pytest.raises(Refused, match="plans to spend more than its budget"):
        honest(Budget(0.999 * epsilon, 1e-5))
    steps = Steps(lambda _: (Gaussian(4.0), UNIT), 3)
    with pytest.raises(Refused, match="plans to spend more than its budget"):
        Run(Budget(epsilon, 1e-5), steps, SecureSource(), what="test")


def test_a_prefix_is_certified_and_a_step_too_many_refused(monkeypatch):
    source = SecureSource()
    run = honest(times=3, source=source)
    run.pay(None)
    ask(run.gate, source, 2)
    assert run.certify().releases == 2
    again = honest(times=1, source=source)
    again.pay(None)
    opened, opening = [], Sealed.open
    monkeypatch.setattr(Sealed, "open", lambda s, key: (opened.append(s), opening(s, key))[1])
    with pytest.raises(Refused, match="release 2 differs"):
        ask(again.gate, source, 2)
    assert len(opened) == again.certify().releases == 1


@pytest.mark.parametrize("rule", [None, Participation.epochs(2, 4)])
@pytest.mark.parametrize("streams", [1, 2])
def test_a_declared_prefix_spends_what_its_gate_logs(rule, streams):
    """Whether the whole prefix is listed or, under a rule, the last step of each stream."""
    noise = named("honaker", 8, Participation.epochs(2, 4))
    mechanisms = [CorrelatedGaussian(noise, 5.0, rule) for _ in range(streams)]
    cells = (lambda k: ((k // streams % 4,),)) if rule is None else (lambda k: ((),))
    sensitivity = lambda k: Sensitivity("l2", 1.0, 1.0, cells(k))  # noqa: E731
    declared = Steps(lambda k: (mechanisms[k % streams], sensitivity(k)), 8 * streams, streams)
    run = Run(Budget(50.0, 1e-5), declared, SeededSource(0), what="test")
    run.pay(None)
    for k in range(8 * streams):
        run.gate.release(mechanisms[k % streams], made_up(np.zeros(2), sensitivity(k)))
        logged, declared_so_far = spend(run.log), spend(declared.log(k + 1))
        assert logged.cells.keys() == declared_so_far.cells.keys()
        assert logged.at_most(declared_so_far)
        assert declared_so_far.at_most(logged)
        run.certify()
    assert spend(run.log).at_most(run.planned)


# ------------------------------------------------------------ no other way
@pytest.mark.parametrize("declared", [None, Log()], ids=["undeclared", "declared"])
def test_a_gate_by_itself_draws_no_secure_noise(declared):
    for source in (SeededSource(0), SilentSource()):
        Gate(source, declared=declared)
    with pytest.raises(Refused, match="make a Run"):
        Gate(SecureSource(), declared=declared)


def test_nobody_but_a_run_certifies():
    gate = Gate(SeededSource(0))
    ask(gate, SeededSource(1))
    for key in (None, object(), "RUN"):
        with pytest.raises(Refused, match="only a run certifies"):
            Certificate.of_run(
                key, gate.log, spend(gate.log), Budget(5.0, 1e-5), solver="x", private=True
            )
    assert not hasattr(Certificate, "from_log")


def test_whether_it_was_private_is_what_the_source_says():
    for source in (SecureSource(), SeededSource(0)):
        run = honest(source=source)
        run.pay(None)
        ask(run.gate, source, 2)
        assert run.certify().private is source.private
    run = honest()
    run.follow(None, paid=True, private=False)
    assert not run.certify().private


def test_every_public_way_to_a_certificate_is_travelled_here():
    reached = {re.split(r"[ ,]", road)[0] for road in ROADS}
    assert reached | NO_FIT == set(privopt.__all__) | {"torch", "federated"}


@pytest.mark.parametrize("road", ROADS)
def test_without_payment_nobody_releases(monkeypatch, road):
    """On every road the data stays closed if the payment is forgotten."""
    monkeypatch.setattr(Run, "pay", lambda self, account, key=None: None)
    with pytest.raises(Refused, match="call pay first"):
        travelled(road)


@pytest.mark.parametrize("road", ROADS)
def test_without_a_declaration_nobody_is_certified(monkeypatch, road):
    """On every road the certificate is made by a run, from its declaration and its gate's log."""
    seen, honest = [], Certificate.of_run.__func__

    def of_run(cls, key, log, planned, *arguments, **named):
        made = honest(cls, key, log, planned, *arguments, **named)
        seen.append((made, len(log), spend(log).at_most(planned)))
        return made

    monkeypatch.setattr(Certificate, "of_run", classmethod(of_run))
    certificate = travelled(road)
    assert seen[-1] == (certificate, certificate.releases, True)
    assert certificate.private
    assert certificate.releases > 0


@pytest.mark.parametrize("road", ROADS)
def test_a_declaration_above_the_budget_is_refused_on_every_road(monkeypatch, road):
    charged, original = [], Run._planned

    def doubled(self, releases=None):
        found = original(self, releases)
        for charge in found.cells.values():
            charge.update(charge.copy())
        return found

    monkeypatch.setattr(Run, "_planned", doubled)
    monkeypatch.setattr(Ledger, "dataset", lambda *_: charged.append(1))
    with pytest.raises(Refused, match="plans to spend more than its budget"):
        travelled(road)
    assert not charged


@pytest.mark.parametrize("road", ROADS)
def test_a_ledger_is_charged_what_was_declared(tmp_path, monkeypatch, road):
    """Streams, trainings and searches as well: the charge is the declaration's, and nothing else
    says what a road costs."""
    charged, reserve = [], Dataset.reserve

    def watched(self, planned, budget, **named):
        caller = sys._getframe(1).f_locals["self"]
        charged.append((caller, planned.cells))
        return reserve(self, planned, budget, **named)

    monkeypatch.setattr(Dataset, "reserve", watched)
    how = {"dataset": "people", "composition": "basic"}
    how["unit"] = "user" if road.startswith("federated") else "record"
    ledger = Ledger.create(tmp_path / "l", 20.0, 1e-2, **how)
    certificate = travelled(road, ledger=ledger, dataset="people")
    ((run, cells),) = charged
    assert isinstance(run, Run)
    assert cells == run._planned().cells
    assert certificate.ledger == run.mark
    assert ledger.verify(certificate) >= 3  # created, reserved, committed; epochs of a training


# ------------------------------------------------------------ one home for each thing
def sources():
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def files_with(pattern):
    return {name for name, text in sources().items() if re.search(pattern, text)}


def test_keys_stay_where_they_belong():
    """Only oracles seal, a gate alone opens; only runs certify and have gates with secure noise."""
    holders = files_with(r"sealed import .*\bKEY\b")
    inside = {name for name in holders if name.startswith("oracle/")}
    assert holders - inside == {"mechanisms/gate.py", "torch/oracle.py"}
    sealing = files_with(r"\bSealed\(")
    assert {name for name in sealing if not name.startswith("oracle/")} == {"torch/oracle.py"}
    sealed_by_hand = files_with(r"oracle\.made_up import|oracle import .*\bmade_up\b")
    assert sealed_by_hand == {"audit/mechanisms.py"}
    assert files_with(r"certificate import .*\bRUN\b") == {
        "mechanisms/gate.py",
        "mechanisms/run.py",
    }
    assert files_with(r"\bCertificate\.of_run\(") == {"mechanisms/run.py"}
    assert files_with(r"\bCertificate\(") == set()


def test_gates_without_a_run_are_for_rehearsals_and_made_up_data():
    found = {name for name in files_with(r"\bGate\(") if not name.startswith("audit/")}
    assert found == {"mechanisms/run.py", "planner/simulate.py"}


def compares_relation(text):
    """Whether a file asks by itself which relation it is, or writes down the factor."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
            if any(isinstance(v, ast.Constant) and v.value == "replace_one" for v in values):
                return True
            if any(isinstance(v, ast.Attribute) and v.attr == "replace_one" for v in values):
                return True
    return False


def test_the_factor_of_a_relation_has_one_home():
    assert {name for name, text in sources().items() if compares_relation(text)} == {
        "privacy/budget.py"
    }


# ------------------------------------------------------------ no drift
def test_the_same_sparse_problem_has_the_same_plan_everywhere():
    import scipy.sparse as sp

    from privopt.geometry import L1Ball

    rng = np.random.default_rng(0)
    X = sp.random_array((60, 12_000), density=1e-3, random_state=rng, format="csr")
    y = np.where(rng.random(60) < 0.5, -1.0, 1.0)
    budget = Budget(2.0, 1e-5)
    problem = Problem(Logistic(), L1Ball(1.0), column_bounds=1.0)
    solved = privopt.solve(problem, X, y, budget=budget, solver="frank_wolfe", random_state=0)
    fitted = privopt.PrivateERM(
        problem, epsilon=2.0, delta=1e-5, solver="frank_wolfe", random_state=0, classes=[-1, 1]
    ).fit(X, y)
    own = privopt.SparseLogisticRegression(
        epsilon=2.0, delta=1e-5, radius=1.0, fit_intercept=False, random_state=0, classes=[-1, 1]
    ).fit(X, y)
    plans = [solved.plan, fitted.plan_, own.plan_]
    assert len({repr(plan.facts) for plan in plans}) == 1
    assert len({repr(plan.settings) for plan in plans}) == 1
    assert plans[0].settings.public()["mode"] == "exact"
