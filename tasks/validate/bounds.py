"""How far a released count can be from the truth, said before anything is drawn."""

import math
from collections.abc import Sequence

CONFIDENCE = 0.95


def chebyshev_bounds(
    sigmas: Sequence[float], possible_cells: Sequence[int], confidence: float = CONFIDENCE
) -> list[float]:
    r"""Return, per level, the error that every node of that level keeps within, with the given probability.

    .. math:: e_k = 2 \sum_{l=1}^{k} \sqrt{2 \sigma_l^2 \ln(2 k N_l / \beta)}, \quad \beta = 1 - \text{confidence}

    Holds for InfTDA with an invariant root, level by level; it is not one statement about all levels at once.

    Args:
        sigmas: σ of levels 0 to T, records; level 0 is exact, and its entry is not read.
        possible_cells: N of levels 0 to T.
        confidence: in (0, 1).
    Returns:
        The bounds of levels 0 to T, records.
    Source:
        Boninsegna and Silvestri (2025): a union bound over the levels above, and at most twice the largest noise per
        level, because IntOpt moves no cell by more than the largest noise and the error of its parent.
    """
    beta = 1 - confidence
    return [
        2
        * sum(
            sigma * math.sqrt(2 * math.log(2 * level * cells / beta))
            for sigma, cells in zip(sigmas[1 : level + 1], possible_cells[1 : level + 1], strict=True)
        )
        for level in range(len(sigmas))
    ]
