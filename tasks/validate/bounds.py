"""Bounds on the error of released counts, computed before anything is drawn."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import takewhile

CONFIDENCE = 0.95
ABOVE_THE_NOISE = 2.0  # a count of so many sigmas stands above the noise


def chebyshev_bounds(
    sigmas: Sequence[float], possible_cells: Sequence[int], confidence: float = CONFIDENCE
) -> list[float]:
    r"""Return, per level, a bound such that, with the given probability, the error of every node of the level is within it.

    .. math:: e_k = \sqrt{2 \sigma_0^2 \ln(2 n_k / \beta)} + 2 \sum_{l=1}^{k} \sqrt{2 \sigma_l^2 \ln(2 n_k N_l / \beta)}

    with n_k the number of measured levels down to k (k + 1 with a measured root, k with an exact one) and β one minus the
    confidence. Holds for InfTDA, level by level; it is not one statement about all levels at once.

    Args:
        sigmas: σ of levels 0 to T, records; 0 where a level is exact.
        possible_cells: N of levels 0 to T.
        confidence: in (0, 1).
    Returns:
        The bounds of levels 0 to T, records; 0 where all levels down to that one are exact.
    Source:
        Boninsegna and Silvestri (2025): a union bound over the measured levels above, and at most twice the largest noise
        per level, because IntOpt moves no cell by more than the largest noise and the error of its parent. The root has
        no parent and no optimiser: its noise counts once.
    """
    beta = 1 - confidence
    bounds = []
    for level in range(len(sigmas)):
        down_to = list(zip(sigmas[: level + 1], possible_cells[: level + 1], strict=True))
        measured = sum(sigma > 0 for sigma, _ in down_to)
        bounds.append(
            math.fsum(
                (1 if above == 0 else 2) * sigma * math.sqrt(2 * (math.log(2 * measured * cells) - math.log(beta)))
                for above, (sigma, cells) in enumerate(down_to)
                if sigma > 0
            )
        )
    return bounds


def gaussian_bounds(
    sigmas: Sequence[float], possible_cells: Sequence[int], confidence: float = CONFIDENCE
) -> list[float]:
    r"""Return, per level, a bound such that, with the given probability, the error of every cell of the level is within it.

    .. math:: e_k = \sigma_k \sqrt{2 \ln(2 N_k / \beta)}, \qquad \sigma_k = \sigma_T \sqrt{w_k}

    with w_k the most leaves in one cell of level k and β one minus the confidence. Holds for leaves that all bear noise, and
    levels that are their sums; level by level, not all levels at once. It holds as well for cells that are not listed:
    their count is 0, exactly as summed.

    A discrete Gaussian of scale σ is sub-Gaussian: E exp(λZ) ≤ exp(λ²σ²/2). The noise of a cell with w leaves is the sum of
    as many independent ones, so that P(|Z| ≥ t) ≤ 2 exp(−t² / 2wσ²) ≤ 2 exp(−t² / 2σ_k²); at t = e_k that is β/N_k, and
    a union over the N_k cells leaves β.

    Args:
        sigmas: σ_k of levels 0 to T, records: of the widest cell.
        possible_cells: N of levels 0 to T.
        confidence: in (0, 1).
    Returns:
        The bounds of levels 0 to T, records.
    Source:
        Canonne, Kamath and Steinke (2020), for the discrete Gaussian's tails.
    """
    beta = 1 - confidence
    pairs = zip(sigmas, possible_cells, strict=True)
    return [sigma * math.sqrt(2 * math.log(2 * cells / beta)) for sigma, cells in pairs]


def finest_above_noise(
    total: int, sigmas: Sequence[float], possible_cells: Sequence[int | None], threshold: int = 0
) -> int | None:
    """Return the level down to which typical cells stand above the noise; None if they do not at the first one.

    A typical cell is the total spread evenly over the level's possible cells; it stands above the noise when it counts at
    least twice the level's σ. Where leaves below a threshold are missing, all sums stand as long as a typical leaf reaches it.

    Args:
        total: public, records.
        sigmas: σ of levels 0 to T, records.
        possible_cells: N of levels 0 to T; where some are None, because no codebook lists them, no level is known to stand.
        threshold: the least count that a leaf is kept with, records; 0 where every leaf is.
    """
    known = [cells for cells in possible_cells if cells is not None]
    if len(known) < len(possible_cells):
        return None
    if threshold:
        return len(known) - 1 if total >= threshold * known[-1] else None
    above = (
        total >= cells * Fraction(ABOVE_THE_NOISE * sigma) for sigma, cells in zip(sigmas[1:], known[1:], strict=True)
    )
    return sum(takewhile(bool, above)) or None
