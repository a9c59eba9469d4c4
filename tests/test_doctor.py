"""The doctor: versions that do not fit, a missing driver, an old driver."""

from __future__ import annotations

import re

import pytest

from nbtc import doctor, driver, ptxas, tools
from nbtc.errors import CompileError, DriverError


def by_subject(found) -> dict[str, doctor.Finding]:
    return {f.subject: f for f in found}


@pytest.fixture
def no_gpu(monkeypatch):
    """Pretend that there is no driver."""

    def count():
        raise DriverError("no CUDA driver on this machine")

    monkeypatch.setattr(driver, "device_count", count)


def test_this_installation_is_healthy(no_gpu, capsys):
    assert doctor.main() == 0
    text = capsys.readouterr().out
    assert "no problems" in text
    assert re.search(r"ok\s+toolchain\s+libNVVM writes PTX \d+\.\d+; assembled for sm_90a", text)
    assert re.search(r"note\s+GPU\s+no CUDA driver", text)


def test_every_package_is_listed(no_gpu):
    found = by_subject(doctor.packages())
    for name in ("numba-cuda", "numpy", "nvidia-nvvm", "nvidia-cuda-nvcc"):
        assert found[name].level == "ok"


def test_ptxas_older_than_libnvvm(monkeypatch):
    old = tools.Tool("ptxas", "/opt/cuda-13.0/ptxas", (13, 0), "13.0.88")
    monkeypatch.setattr(ptxas.tools, "find", lambda name: old)
    found = doctor._guarded("toolchain", doctor.toolchain, ("sm_90a",))
    assert found.level == "problem"
    assert re.search(r"writes PTX (\d+\.\d+), ptxas 13\.0 .* reads 9\.0", found.text)
    assert re.search(r"install nvidia-cuda-nvcc>=\d+\.\d+ or pin nvidia-nvvm", found.text)


def test_missing_tool_names_its_wheel(monkeypatch):
    def find(name):
        raise CompileError(f"{name}: not found; install it with: pip install a-wheel")

    monkeypatch.setattr(tools, "find", find)
    assert doctor.tool("ptxas").level == "problem"
    assert doctor.tool("nvdisasm").level == "note"
    assert doctor.tool("ptxas").remedy == "install it with: pip install a-wheel"


def test_package_outside_its_requirement(monkeypatch):
    pytest.importorskip("packaging")
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["numpy>=2.0,<2.5"])
    monkeypatch.setattr(doctor, "_version", lambda name: "2.5.1")
    (found,) = doctor.requirements()
    assert (found.level, found.subject) == ("problem", "numpy")
    assert "2.5.1 installed" in found.text
    assert found.remedy.startswith("pip install 'numpy")


def test_missing_package(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    found = by_subject(doctor.packages())
    assert found["numba-cuda"].remedy == "pip install numba-cuda"
    assert "torch" not in found


def test_import_error_of_numba_names_numpy():
    def look():
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    found = doctor._guarded("toolchain", look)
    assert (found.level, found.remedy[:11]) == ("problem", "pip install")


@pytest.mark.parametrize(
    ("cuda", "level"), [((12, 8), "problem"), ((13, 0), "ok"), ((13, 9), "ok")]
)
def test_driver_must_be_of_the_toolkits_major_version(monkeypatch, cuda, level):
    monkeypatch.setattr(driver, "cuda_version", lambda: cuda)
    monkeypatch.setattr(driver, "driver_version", lambda: "580.1")
    found = doctor._driver()
    assert found.level == level
    assert ("update the driver" in found.remedy) is (level == "problem")


@pytest.mark.parametrize(
    ("capability", "level", "text"),
    [((9, 0), "ok", "target sm_90a"), ((12, 0), "note", "not supported; supported targets: sm_90")],
)
def test_devices(monkeypatch, capability, level, text):
    monkeypatch.setattr(driver, "compute_capability", lambda index: capability)
    monkeypatch.setattr(driver, "device_name", lambda index: "A GPU")
    found = doctor._device(0)
    assert found.level == level
    assert text in found.text


def test_problem_makes_the_exit_status(monkeypatch, capsys):
    bad = doctor.Finding("problem", "thing", "broken", "mend it")
    monkeypatch.setattr(doctor, "examine", lambda: [bad])
    assert doctor.main() == 1
    text = capsys.readouterr().out
    assert "PROBLEM thing" in text
    assert "-> mend it" in text


def test_arguments_are_not_taken(capsys):
    assert doctor.main(["--verbose"]) == 2
    assert "usage" in capsys.readouterr().err
