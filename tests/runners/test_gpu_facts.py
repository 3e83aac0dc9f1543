"""What the driver tells of a GPU, by a library that stands in for NVML."""

import sys
import types

import pytest

from kt_lab.errors import UsageError
from kt_lab.runners.gpu import facts


@pytest.fixture
def nvml(monkeypatch):
    """A library that knows two GPUs; of the second it tells no power."""

    def power(gpu):
        if gpu == 1:
            raise RuntimeError("not supported")
        return 250_000

    def by_uuid(uuid):
        return ["GPU-a", "GPU-b"].index(uuid)

    library = types.ModuleType("pynvml")
    library.NVML_CLOCK_SM, library.NVML_CLOCK_MEM, library.NVML_TEMPERATURE_GPU = range(3)
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetHandleByIndex = [0, 1].__getitem__
    library.nvmlDeviceGetHandleByUUID = by_uuid
    library.nvmlDeviceGetUUID = [b"GPU-a", "GPU-b"].__getitem__
    library.nvmlDeviceGetName = lambda gpu: "NVIDIA H200"  # noqa: ARG005
    library.nvmlDeviceGetCudaComputeCapability = lambda gpu: (9, gpu)
    library.nvmlSystemGetDriverVersion = lambda: b"580.1"
    library.nvmlDeviceGetClockInfo = lambda gpu, kind: 1000 * (1 + kind) + gpu
    library.nvmlDeviceGetTemperature = lambda gpu, kind: 40 + gpu  # noqa: ARG005
    library.nvmlDeviceGetPowerUsage = power
    library.nvmlDeviceGetEnforcedPowerLimit = lambda gpu: 700_000  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


@pytest.mark.usefixtures("nvml")
def test_a_gpu_is_known_by_its_identity_whatever_names_it(monkeypatch):
    assert (facts.gpu_uuid(0), facts.gpu_uuid(1)) == ("GPU-a", "GPU-b")
    assert (facts.gpu_name(1), facts.gpu_arch(1)) == ("NVIDIA H200", "sm_91")
    for visible in ("1", "GPU-b"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert facts.gpu_uuid(0) == facts.lock_name(0) == "GPU-b"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert facts.gpu_uuid(0) is None
    assert facts.lock_name(0) == "index-7"


@pytest.mark.usefixtures("nvml")
def test_a_gpu_that_is_not_there_is_told_in_words_that_name_replay(monkeypatch):
    monkeypatch.setattr(facts, "_counted", lambda: 0)
    facts.require_gpu(0, 1)
    with pytest.raises(UsageError, match=r"got no GPU with index 2; .*kt-lab compare replays"):
        facts.require_gpu(1, 2)
    facts.require_gpu(2, timing="tests.fakes:timing_service")
    monkeypatch.setattr(facts, "_counted", lambda: 3)
    facts.require_gpu(2)  # NVML hides it, CUDA does not


@pytest.mark.usefixtures("nvml")
def test_a_sensor_that_is_hidden_hides_no_other():
    told = facts.read_sensors(0)
    assert told == {
        "driver": "580.1",
        "sm_mhz": 1000,
        "memory_mhz": 2000,
        "temperature_c": 40,
        "power_w": 250.0,
        "power_limit_w": 700.0,
    }
    other = facts.read_sensors(1)
    assert other["power_w"] is None
    assert other | {"power_w": 0} == {
        "driver": "580.1",
        "sm_mhz": 1001,
        "memory_mhz": 2001,
        "temperature_c": 41,
        "power_w": 0,
        "power_limit_w": 700.0,
    }


def test_without_the_library_or_its_driver_nothing_is_told(nvml, monkeypatch):
    def no_driver():
        raise RuntimeError("driver not loaded")

    nvml.nvmlInit = no_driver
    assert facts.gpu_arch() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert facts.gpu_name() is None
    assert set(facts.read_sensors().values()) == {None}
    assert len(facts.read_sensors()) == 6
