"""Dask on this machine: the bits of this process, whatever happens to a worker."""

import logging

import pytest

from privopt.engines import named

from . import faults, people

pytest.importorskip("distributed")
faults.sent_whole(pytest.importorskip("cloudpickle"))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def engine():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    found = named("dask")(n_workers=2, silence_logs=logging.CRITICAL)
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path):
    return people.write(tmp_path / "people")


def test_every_fit_has_the_bits_of_this_process(engine, folder):
    faults.check_all(engine, folder)


def test_failures_say_nothing_of_rows(engine, folder):
    said = faults.failures(engine, faults.planted(folder))
    logs = repr(engine._client.get_worker_logs()) + repr(engine._client.get_scheduler_logs())
    shown = repr(engine._client.who_has()) + repr(engine._client.story())
    assert not faults.holds_a_canary("".join(said) + logs + shown)


def test_a_worker_that_dies_changes_no_bit(engine, folder):
    workers = engine._client.run(lambda: __import__("os").getpid())
    faulty = faults.Faulty(engine, lambda: list(workers.values()))
    faulty.trusted = engine.trusted
    faults.check_all(faulty, folder, ["noisy_gd"], chunk_rows=100)
