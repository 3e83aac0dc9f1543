"""The operators that ship with the program dojo: a registry of names."""

from kt_lab.errors import UnknownName
from kt_lab.programs.operators import convolution, elementwise, matmul, norms, rows
from kt_lab.programs.operators.definition import CASES, Operator, error
from kt_lab.workload import Workload

__all__ = ["CASES", "Operator", "error", "get_operator", "get_workload", "operators", "workloads"]

# A new operator is one more entry of a family's OPERATORS.
_FAMILIES = (elementwise, rows, norms, matmul, convolution)
REGISTRY = {operator.name: operator for family in _FAMILIES for operator in family.OPERATORS}


def get_operator(name: str) -> Operator:
    """Returns an operator by its registry name, or raises UnknownName."""
    if name not in REGISTRY:
        raise UnknownName("operator", name, REGISTRY)
    return REGISTRY[name]


def operators() -> tuple[Operator, ...]:
    """Returns every operator, the simplest first."""
    return tuple(REGISTRY.values())


def workloads() -> tuple[Workload, ...]:
    """Returns the workloads of all operators; `workload.kernel` names the operator."""
    return tuple(workload for operator in operators() for workload in operator.workloads)


def get_workload(key: str) -> Workload:
    """Returns a workload by its key `operator/extents`, or raises UnknownName."""
    known = {workload.key: workload for workload in workloads()}
    if key not in known:
        raise UnknownName("workload of an operator", key, known)
    return known[key]
