"""Affine forms over the iterators of the enclosing scopes, which are known by their depth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Affine:
    """An index: `constant + sum of coefficients[d] * {d}`, where {0} is the outermost iterator.

    Equal forms are equal objects: trailing zero coefficients are dropped.

    Attributes:
        constant: The part that depends on no iterator.
        coefficients: One factor per depth, outermost first.
    """

    constant: int = 0
    coefficients: tuple[int, ...] = ()

    def __post_init__(self):
        """Drops trailing zeros, so that one form has one representation."""
        used = len(self.coefficients)
        while used and not self.coefficients[used - 1]:
            used -= 1
        if used != len(self.coefficients):
            object.__setattr__(self, "coefficients", self.coefficients[:used])

    @classmethod
    def iterator(cls, depth: int, factor: int = 1) -> Self:
        """Returns `factor * {depth}`."""
        return cls(0, (0,) * depth + (factor,))

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths whose iterators the form depends on, ascending."""
        return tuple(d for d, factor in enumerate(self.coefficients) if factor)

    def coefficient(self, depth: int) -> int:
        """Returns the factor of one iterator, 0 when the form does not depend on it."""
        return self.coefficients[depth] if depth < len(self.coefficients) else 0

    def plus(self, other: "Affine | int") -> "Affine":
        """Returns the sum with another form or an integer."""
        if isinstance(other, int):
            return Affine(self.constant + other, self.coefficients)
        size = max(len(self.coefficients), len(other.coefficients))
        return Affine(
            self.constant + other.constant,
            tuple(self.coefficient(d) + other.coefficient(d) for d in range(size)),
        )

    def times(self, factor: int) -> "Affine":
        """Returns the form multiplied by an integer."""
        return Affine(self.constant * factor, tuple(c * factor for c in self.coefficients))

    def rewritten(self, form: Callable[[int], "Affine"]) -> "Affine":
        """Returns the form with every iterator {d} that it uses replaced by `form(d)`."""
        result = Affine(self.constant)
        for depth in self.depths:
            result = result.plus(form(depth).times(self.coefficients[depth]))
        return result

    def merged(self, depth: int, inner: int) -> "Affine | None":
        """Joins the iterators {depth} and {depth+1} into one, the reverse of a split.

        Args:
            depth: Depth of the outer iterator of the two.
            inner: Extent of the inner scope.

        Returns:
            The form over one iterator less (deeper ones move up), or None when the two do not
            occur as a multiple of `inner*{depth}+{depth+1}`.
        """
        low = self.coefficient(depth + 1)
        if self.coefficient(depth) != inner * low:
            return None
        padded = self.coefficients + (0,) * (depth + 2 - len(self.coefficients))
        return Affine(self.constant, (*padded[:depth], low, *padded[depth + 2 :]))

    def divided(self, factor: int, extents: Sequence[int]) -> "tuple[Affine, Affine] | None":
        """Writes the form as `factor*quotient + remainder` with the remainder in 0..factor-1.

        Args:
            factor: The divisor, at least 1.
            extents: Extents of the enclosing scopes, outermost first.

        Returns:
            Quotient and remainder, both affine, or None when no such pair was found.
        """
        whole, left = divmod(self.constant, factor)
        high = tuple(0 if c % factor else c // factor for c in self.coefficients)
        low = tuple(c if c % factor else 0 for c in self.coefficients)
        remainder = Affine(left, low)
        least, most = remainder.bounds(extents)
        return (Affine(whole, high), remainder) if least >= 0 and most < factor else None

    def bounds(self, extents: Sequence[int]) -> tuple[int, int]:
        """Returns the least and the greatest value (both taken) in a box of iterators.

        Args:
            extents: Extents of the enclosing scopes, outermost first; at least as many as the
                form has coefficients.
        """
        low = high = self.constant
        for factor, extent in zip(self.coefficients, extents, strict=False):
            if factor > 0:
                high += factor * (extent - 1)
            else:
                low += factor * (extent - 1)
        return low, high

    def value(self, iterators: Sequence[int]) -> int:
        """Returns the value at one point; `iterators` holds one integer per depth."""
        return self.constant + sum(
            c * i for c, i in zip(self.coefficients, iterators, strict=False)
        )
