"""The GPUs that can be compiled for without one."""

from dataclasses import dataclass

from kt_lab.errors import UnknownName

THREADS = 1024  # the most of one program, on every target below


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture, and the GPU that stands for it.

    Attributes:
        name: As its vendor's compiler calls it ("sm_90", "gfx942").
        gpu: The GPU whose multiprocessors are counted.
        sms: Multiprocessors or compute units of that GPU; grids may depend on them.
        shared_bytes: Shared memory (AMD: LDS) that one program may have.
        warp_size: Threads of a warp or wavefront.
    """

    name: str
    gpu: str
    sms: int
    shared_bytes: int
    warp_size: int = 32

    @property
    def amd(self) -> bool:
        """Whether it is one of AMD's."""
        return self.name.startswith("gfx")

    @property
    def compiler(self) -> dict[str, int | str]:
        """Arguments of the compile service: arch, backend and warp_size."""
        arch: int | str = self.name if self.amd else int(self.name.removeprefix("sm_"))
        backend = "hip" if self.amd else "cuda"
        return {"arch": arch, "backend": backend, "warp_size": self.warp_size}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The texts that a kernel is compiled to, from the most abstract one on."""
        return ("ttir", "ttgir", "llir", *(("amdgcn",) if self.amd else ("ptx", "sass")))


# Shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
# maximum per thread block; AMD Instinct MI200, MI300 and CDNA 4 instruction set guides, LDS per
# work-group. Multiprocessors: the data sheet of the GPU.
TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", "A100", 108, 163 * 1024),
        Target("sm_86", "A10", 72, 99 * 1024),
        Target("sm_89", "L40S", 142, 99 * 1024),
        Target("sm_90", "H100 or H200 SXM", 132, 227 * 1024),
        Target("sm_100", "B200", 148, 227 * 1024),
        Target("sm_120", "RTX 5090", 170, 99 * 1024),
        Target("gfx90a", "MI210", 104, 64 * 1024, 64),
        Target("gfx942", "MI300X", 304, 64 * 1024, 64),
        Target("gfx950", "MI355X", 256, 160 * 1024, 64),
    )
}


def get_target(target: Target | str) -> Target:
    """Returns a target by its name, or raises UnknownName; a Target is returned as it is."""
    if isinstance(target, Target):
        return target
    if target not in TARGETS:
        raise UnknownName("target", target, TARGETS)
    return TARGETS[target]
