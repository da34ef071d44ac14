"""Sealed values: computed from data, opened only by a gate.

Sealing guards against mistakes, not against malice: Python has no walls, only doors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, Protocol

from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.ownership import own_type
from privopt.privacy.budget import Refused

KEY = object()  # held by oracles and gates


class Map(Protocol):
    """A public map with a known stretch, applied to a sealed value without opening it."""

    @property
    def norm_in(self) -> SensitivityNorm: ...
    @property
    def norm_out(self) -> SensitivityNorm: ...
    def stretch(self, radius: Any) -> Any:
        """Bound on the movement of the image of a value that moves by at most ``radius``."""
        ...

    def apply(self, payload: Any) -> Any: ...


class Sealed:
    """A payload that cannot be read, printed, compared or computed with, and its public
    sensitivity."""

    __slots__ = ("_payload", "sensitivity")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, key: object, payload: Any, sensitivity: Sensitivity) -> None:
        if key is not KEY:
            raise Refused("only an oracle makes sealed values.")
        self._payload = payload
        self.sensitivity = sensitivity

    def open(self, key: object) -> Any:
        if key is not KEY:
            raise Refused("only a gate opens a sealed value: use gate.release(mechanism, sealed).")
        return self._payload

    def through(self, map: Map) -> Sealed:
        """Apply a declared map. There is no way to apply a plain function: it would see data."""
        if map.norm_in != self.sensitivity.norm:
            raise Refused(
                f"{type(map).__name__} takes a value bounded in {map.norm_in}, "
                f"this one is bounded in {self.sensitivity.norm}."
            )
        if not own_type(type(map)):
            raise Refused(
                f"{type(map).__name__} is not a map of the library's own, and would see what is "
                "sealed: use Linear or another map of privopt.mechanisms.maps, or a new question."
            )
        if self.sensitivity.grid is not None:
            raise Refused("a sum on a grid is released as it is: map what comes out.")
        sensitivity = replace(
            self.sensitivity,
            norm=map.norm_out,
            radius=map.stretch(self.sensitivity.radius),
            single=map.stretch(self.sensitivity.single),
        )
        return Sealed(KEY, map.apply(self._payload), sensitivity)

    def __repr__(self) -> str:
        return f"Sealed({self.sensitivity.norm}, view {self.sensitivity.view})"

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise Refused("a sealed value is not a number: release it through a gate.")

    __array__ = __bool__ = __float__ = __int__ = __complex__ = __index__ = _refuse
    __iter__ = __len__ = __getitem__ = __contains__ = __format__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __neg__ = __abs__ = __pow__ = _refuse
    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse
