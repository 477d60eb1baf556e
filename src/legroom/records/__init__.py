"""The nouns that pass between the rooms: frozen, framework-free."""

from legroom.records.estimate import CurvePoint, Estimate, LayerShare
from legroom.records.host import HostEstimate, HostPart
from legroom.records.program import CATEGORIES, Allocation, Buffer, Category, Instruction, Program, Trial
from legroom.records.simulation import Failure
from legroom.records.step import Execution, Framework, Lowered, Role, Step, Tensor

__all__ = [
    "CATEGORIES",
    "Allocation",
    "Buffer",
    "Category",
    "CurvePoint",
    "Estimate",
    "Execution",
    "Failure",
    "Framework",
    "HostEstimate",
    "HostPart",
    "Instruction",
    "LayerShare",
    "Lowered",
    "Program",
    "Role",
    "Step",
    "Tensor",
    "Trial",
]
