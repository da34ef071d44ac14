"""Ray on this machine: the bits of this process, whatever happens to a worker."""

from pathlib import Path

import pytest

from privopt.engines import named

from . import faults, people

ray = pytest.importorskip("ray")
faults.sent_whole(pytest.importorskip("ray.cloudpickle"))
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    found = named("ray")(num_cpus=2, object_store_memory=100 << 20)
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path):
    return people.write(tmp_path / "people")


def test_every_fit_has_the_bits_of_this_process(engine, folder):
    faults.check_all(engine, folder)


def test_a_worker_that_dies_changes_no_bit(engine, folder):
    def process():
        import os

        return os.getpid()

    def victims():
        return [ray.get(ray.remote(process).remote())]

    faulty = faults.Faulty(engine, victims)
    faulty.trusted = engine.trusted
    faults.check_all(faulty, folder, ["noisy_gd"], chunk_rows=100)


def test_failures_say_nothing_of_rows(engine, folder, capfd):
    said = faults.failures(engine, faults.planted(folder))
    shown = capfd.readouterr()
    assert not faults.holds_a_canary("".join(said) + shown.out + shown.err)
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    assert not faults.in_files(logs)
