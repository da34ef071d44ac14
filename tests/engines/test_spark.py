"""Spark on this machine: the bits of this process, whatever happens to a worker."""

import pytest

from privopt.engines import named
from tests.covering import ALL

from . import faults, people

pytest.importorskip("pyspark")
faults.sent_whole(pytest.importorskip("pyspark.cloudpickle"))
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


@pytest.fixture(scope="module")
def engine():
    found = named("spark")(cores=2)
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path):
    return people.write(tmp_path / "people")


def test_fits_have_the_bits_of_this_process(engine, folder):
    """Each round is a job of a quarter of a second. Dask and Ray run every fit."""
    faults.check_all(engine, folder, people.FITS if ALL else ["frank_wolfe", "many_classes"])


def test_a_worker_that_dies_changes_no_bit(engine, folder):
    def process(_):
        import os

        return os.getpid()

    def victims():
        return engine._session.sparkContext.parallelize([0], 1).map(process).collect()

    faulty = faults.Faulty(engine, victims)
    faulty.trusted = engine.trusted
    faults.check_all(faulty, folder, ["noisy_gd"])


def test_failures_say_nothing_of_rows(engine, folder, capfd):
    said = faults.failures(engine, faults.planted(folder))
    shown = capfd.readouterr()
    assert not faults.holds_a_canary("".join(said) + shown.out + shown.err)
