import pytest

from kt_lab import load_landscape
from kt_lab.roofline import Roofline, roofline

FACTS = {"gpu": "h200", "bytes_floor_us": 10.0, "bytes_moved": 1000, "dtype": "bfloat16"}


def test_the_higher_floor_binds():
    slow = roofline(FACTS | {"flops": 989.4e6 * 40})
    assert slow.flops_us == pytest.approx(40)
    assert (slow.floor_us, slow.bound) == (slow.flops_us, "arithmetic")
    assert slow.share(80.0) == pytest.approx(0.5)
    light = roofline(FACTS | {"flops": 989.4e6})
    assert (light.floor_us, light.bound) == (10.0, "memory")


def test_narrower_elements_double_the_arithmetic():
    flops = {"flops": 10**12}
    wide = roofline(FACTS | flops)
    assert roofline(FACTS | flops | {"dtype": "float8_e4m3fn"}).flops_us == pytest.approx(
        wide.flops_us / 2, rel=1e-3
    )


def test_an_unknown_gpu_has_a_memory_floor_only():
    roof = roofline(FACTS | {"gpu": "toy", "flops": 10**12})
    assert roof == Roofline(1000, 10**12, 1e8, None)
    assert (roof.flops_us, roof.floor_us, roof.bound) == (None, 10.0, "memory")


@pytest.mark.parametrize("key", ["softmax/8192x8192", "int4_gemm/1x2048x2048x2048"])
def test_no_recorded_config_is_above_its_roofline(key):
    landscape = load_landscape(key, gpu="h200")
    assert 0 < roofline(landscape.manifest).share(landscape.optimum_us) <= 1
