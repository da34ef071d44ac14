"""Folders of streams: what goes on, what is refused, and what a new stream accounts."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from privopt import Ledger, OnlineLinearRegression, OnlineLogisticRegression, Refused
from privopt.mechanisms import HOOK
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.privacy.factorizations import Honaker
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu

STEPS, SIZE = 16, 20
RULE = Participation.single_pass()


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((STEPS * SIZE, 3))
    return X, rng.integers(3, size=len(X))


def make(folder, kind="logistic", **how):
    if kind == "linear":
        return OnlineLinearRegression(
            **{"n_steps": STEPS, "noise": "honaker", "checkpoint": folder, **how}
        )
    return OnlineLogisticRegression(
        **{
            "epsilon": 2.0,
            "n_steps": STEPS,
            "noise": "honaker",
            "classes": [0, 1, 2],
            "checkpoint": folder,
            **how,
        }
    )


def feed(model, stream, first, last, **how):
    X, y = stream
    for batch in range(first, last):
        rows = slice(SIZE * batch, SIZE * batch + SIZE)
        model.partial_fit(X[rows], y[rows], **how)
    return model


@pytest.mark.parametrize("kind", ["logistic", "linear"])
@pytest.mark.parametrize("how", [{}, {"n_steps": None, "noise": "auto"}, {"average": True}])
def test_resumed_models_are_the_same(stream, tmp_path, kind, how):
    """Models, certificates and predictions; three classes are three streams of noise."""
    X, _ = stream
    if kind == "logistic" and "average" in how:
        how = {"average": "all"}
    model = feed(make(tmp_path / "run", kind, **how), stream, 0, 5)
    again = make(tmp_path / "run", kind, **how).resume()
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.privacy_ == model.privacy_
    assert again.steps_ == 5
    feed(again, stream, 5, 7)
    assert again.steps_ == 7
    assert again.privacy_.private


def test_the_noise_file_holds_buffers_and_nothing_else(stream, tmp_path):
    """As many vectors as Honaker's tree keeps after five steps, for each of three models."""
    feed(make(tmp_path / "run"), stream, 0, 5)
    _, saved = Checkpoint.load(tmp_path / "run")
    vectors = [value for name, value in saved.noise.items() if not name.endswith("state")]
    assert [v.shape for v in vectors] == [(4,)] * 6
    for model in range(3):
        state = json.loads(str(saved.noise[f"{model}.state"]))
        assert set(state) <= {"of", "noise", "radius", "sampling", "steps", "cells"}
        assert state["noise"] == {"step": 5}


def test_partial_fit_resumes_by_itself(stream, tmp_path):
    feed(make(tmp_path / "run"), stream, 0, 3)
    assert feed(make(tmp_path / "run"), stream, 3, 4).steps_ == 4


def test_a_seed_does_not_repeat_its_noise_after_a_restart(stream, tmp_path):
    noises = []

    def hook(mechanism, payload, sensitivity, event, run):
        result = run()
        noises.append(float((result - payload)[0]))
        return result

    token = HOOK.set(hook)
    try:
        feed(make(tmp_path / "run", random_state=0), stream, 0, 4)
        feed(make(tmp_path / "run", random_state=0), stream, 4, 8)
    finally:
        HOOK.reset(token)
    assert len(set(noises)) == len(noises) == 24


def test_names_are_remembered(stream, tmp_path):
    names = np.array([f"person {i}" for i in range(SIZE)])
    feed(make(tmp_path / "run"), stream, 0, 1, record_ids=names)
    again = make(tmp_path / "run")
    with pytest.raises(Refused, match="already taken part"):
        feed(again, stream, 1, 2, record_ids=names)
    assert again.steps_ == 1
    assert "person" not in (tmp_path / "run" / "records").read_text()
    (tmp_path / "run" / "records").write_text("")
    with pytest.raises(Refused, match="participations was cut or altered"):
        make(tmp_path / "run").resume()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"epsilon": 3.0}, "epsilon cannot change"),
        ({"data_norm": 2.0}, "data_norm cannot change"),
        ({"max_participations": 2}, "max_participations cannot change"),
        ({"classes": [0, 1, 2, 3]}, "classes cannot change"),
    ],
)
def test_other_parameters_are_refused(stream, tmp_path, how, words):
    feed(make(tmp_path / "run"), stream, 0, 2)
    with pytest.raises(Refused, match=words):
        make(tmp_path / "run", **how).resume()


def test_another_estimator_is_refused(stream, tmp_path):
    feed(make(tmp_path / "run"), stream, 0, 2)
    other = OnlineLinearRegression(checkpoint=tmp_path / "run")
    with pytest.raises(Refused, match="cannot change"):
        other.resume()


def test_fit_does_not_overwrite_a_run(stream, tmp_path):
    feed(make(tmp_path / "run"), stream, 0, 2)
    with pytest.raises(Refused, match="holds a run"):
        make(tmp_path / "run").fit(*stream)


def test_nothing_to_resume(tmp_path):
    for folder in (None, tmp_path / "nowhere"):
        with pytest.raises(Refused, match="no run to resume"):
            make(folder).resume()
        with pytest.raises(Refused, match="no stream to go on with"):
            make(folder).start_new_stream()


def lose(folder, how):
    noise = next(folder.glob("noise-*"))
    if how == "missing":
        noise.unlink()
    elif how == "truncated":
        noise.write_bytes(noise.read_bytes()[:-40])
    elif how == "foreign":
        other = folder.parent / "other"
        model = make(other)
        rng = np.random.default_rng(1)
        for _ in range(5):
            model.partial_fit(rng.standard_normal((SIZE, 3)), rng.integers(3, size=SIZE))
        shutil.copy(other / "noise-5", folder / "noise-5")


@pytest.mark.parametrize("how", ["missing", "truncated", "foreign"])
def test_lost_noise_is_refused_and_a_new_stream_accounts_both(stream, tmp_path, how):
    """mu^2 of five steps and of a whole new stream of eleven: not above the budget."""
    folder = tmp_path / "run"
    coef = feed(make(folder), stream, 0, 5).coef_
    lose(folder, how)
    model = make(folder)
    with pytest.raises(Refused, match="start_new_stream") as caught:
        feed(model, stream, 5, 6)
    assert "\n" not in str(caught.value)
    assert not hasattr(model, "coef_")
    model.start_new_stream()
    np.testing.assert_array_equal(model.coef_, coef)
    feed(model, stream, 5, 6)
    mu = gaussian_mu(2.0, 1e-6)
    old = (
        mu**2
        * Honaker(STEPS).sensitivity_squared(RULE, 5)
        / Honaker(STEPS).sensitivity_squared(RULE)
    )
    fresh = Honaker(STEPS - 5)
    share = fresh.sensitivity_squared(RULE, 1) / fresh.sensitivity_squared(RULE)
    expected = gaussian_epsilon(math.sqrt(old + (mu**2 - old) * share), 1e-6)
    assert model.epsilon_spent() == pytest.approx(expected, rel=1e-6)
    assert model.epsilon_spent(at_end=True) == pytest.approx(2.0, rel=1e-6)
    again = feed(make(folder), stream, 6, STEPS)  # the new stream resumes like any other
    assert again.privacy_.epsilon == pytest.approx(2.0, rel=1e-6)
    assert again.privacy_.releases == 3 * STEPS


def test_an_older_model_pays_for_all_steps_that_left_noise(stream, tmp_path):
    """Eight steps were released, a backup of the model after two of them came back."""
    folder = tmp_path / "run"
    feed(make(folder), stream, 0, 2)
    kept = (folder / "model").read_bytes()
    feed(make(folder), stream, 2, 8)
    (folder / "model").write_bytes(kept)
    with pytest.raises(Refused, match="newer than the model"):
        make(folder).resume()
    model = make(folder, epsilon=4.0).start_new_stream()
    assert model.steps_ == 2
    share = Honaker(STEPS).sensitivity_squared(RULE, 8) / Honaker(STEPS).sensitivity_squared(RULE)
    mu = gaussian_mu(2.0, 1e-6) * math.sqrt(share)
    assert model.epsilon_spent() == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-6)


def test_the_noise_of_given_up_streams_stays_in_the_sums(stream, tmp_path):
    """The ridge of least squares knows of both."""
    X, y = stream
    model = make(tmp_path / "run", "linear")
    for batch in range(4):
        rows = slice(SIZE * batch, SIZE * batch + SIZE)
        model.partial_fit(X[rows], y[rows] - 1.0)
    before = model._run.noise(4)
    model.start_new_stream()
    own = (
        model._run._mechanisms[0].noise_multiplier
        * model._run.recipe.sensitivity
        * model._run.factorization.row_norms()[0]
    )
    assert model._run.noise(1) == pytest.approx(math.hypot(before, own), rel=1e-12)


def test_a_ledger_pays_for_the_whole_stream_once(stream, tmp_path):
    """Before the first step, for all of them; a restart costs nothing, a new stream its own."""
    ledger = Ledger.create(tmp_path / "ledger.db", 5.0, 1e-6, dataset="visits")
    how = {"ledger": ledger, "dataset": "visits"}
    model = feed(make(tmp_path / "run", **how), stream, 0, 1)
    assert ledger.dataset("visits").spent[0] == pytest.approx(2.0, rel=5e-3)
    assert model.privacy_.ledger["dataset"] == "visits"
    assert ledger.verify(model.privacy_) == 3
    feed(make(tmp_path / "run", **how), stream, 1, 3)
    assert ledger.dataset("visits").counts["committed"] == 1
    again = make(tmp_path / "run", **how).resume()
    again.set_params(epsilon=2.5).start_new_stream()
    assert ledger.dataset("visits").counts["committed"] == 2
    assert again.privacy_.ledger["entry"] > model.privacy_.ledger["entry"]


def test_a_ledger_refuses_before_anything_is_released(stream, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-5)
    for how, words in [({}, "left"), ({"random_state": 0}, "not private")]:
        model = make(tmp_path / "run", ledger=ledger, **how)
        with pytest.raises(Refused, match=words):
            feed(model, stream, 0, 1)
        assert not hasattr(model, "coef_")
        assert not (tmp_path / "run").exists()
    assert ledger.dataset().spent[0] == 0.0


def test_a_new_stream_counts_the_steps_of_other_objects(stream, tmp_path):
    """The folder is the authority: an object that is behind it does not forget what it missed."""
    objects = [feed(make(tmp_path / "run", epsilon=4.0), stream, 0, 1)]
    objects += [make(tmp_path / "run", epsilon=4.0).resume() for _ in range(3)]
    spent, steps = objects[0].epsilon_spent(), 1
    for model in objects:
        model.start_new_stream()
        assert model.steps_ == steps
        assert model.epsilon_spent() >= spent * (1 - 1e-9)
        feed(model, stream, steps, steps + 1)
        assert model.epsilon_spent() > spent
        spent, steps = model.epsilon_spent(), steps + 1
    assert spent <= 4.0


def test_of_two_new_streams_at_once_one_is_refused(stream, tmp_path):
    feed(make(tmp_path / "run"), stream, 0, 2)
    first, _, _ = Checkpoint.standing(tmp_path / "run")
    make(tmp_path / "run").start_new_stream()
    with pytest.raises(Refused, match="another process has gone on"):
        first.renew(2, "nonce", {})


def test_a_new_stream_of_a_lost_folder_is_refused(stream, tmp_path):
    model = feed(make(tmp_path / "run"), stream, 0, 2)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(Refused, match="is gone"):
        model.start_new_stream()
