"""Shares with which counts that matter have the least error, held to least squares over the leaves themselves."""

import numpy as np
import pytest

from tasks.settle.shares import Part, atoms_of, least_error_shares


def mean_variances(labels, leaves, shares):
    """Return the mean variance of the cells of each grouping, and of the leaves, by least squares over all leaves."""
    rows = [np.eye(leaves) * np.sqrt(shares[-1])]
    matrices = [(label[None, :] == np.arange(label.max() + 1)[:, None]).astype(float) for label in labels]
    rows += [matrix * np.sqrt(share) for matrix, share in zip(matrices, shares[:-1], strict=True)]
    stacked = np.concatenate(rows)
    covariance = np.linalg.inv(stacked.T @ stacked)
    return [np.trace(matrix @ covariance @ matrix.T) / len(matrix) for matrix in matrices] + [
        np.trace(covariance) / leaves
    ]


@pytest.fixture
def groupings():
    """Return two groupings of 24 leaves that cross each other."""
    generator = np.random.default_rng(3)
    rows, columns = np.repeat(np.arange(4), 6).astype(np.int32), np.tile(np.arange(3), 8).astype(np.int32)
    columns[generator.permutation(24)[:6]] = 1
    return [rows, columns]


def parts_of(groupings, weights):
    """Return the sizes of atoms, and the groupings with their weights."""
    sizes, cells = atoms_of(groupings)
    return sizes, [
        Part(cell, int(of.max()) + 1, weight) for cell, of, weight in zip(cells, groupings, weights, strict=True)
    ]


@pytest.mark.parametrize("weights", [(1.0, 1.0, 0.0), (3.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 5.0, 0.2)])
def test_no_other_shares_near_by_have_less_error(groupings, weights):
    """Around the shares that are found, moving a hundredth from one part to another makes the weighted error larger or changes nothing."""
    sizes, parts = parts_of(groupings, weights[:2])
    found = least_error_shares(sizes, parts, weights[2], lambda shares: shares)
    found = found / found.sum()

    def error(shares):
        return float(np.dot(weights, mean_variances(groupings, 24, shares)))

    least = error(found)
    for one in range(3):
        for other in range(3):
            moved = found.copy()
            moved[one] += 0.01
            moved[other] -= 0.01
            if one != other and moved.min() > 0.001 and moved[-1] >= 0.1:
                assert error(moved) > least * (1 - 1e-4)


def test_the_precision_of_laplace_noise_is_the_square_of_its_share(groupings):
    """With precision in squares, shares differ less than with precision in proportion."""
    sizes, parts = parts_of(groupings, (9.0, 1.0))
    linear = least_error_shares(sizes, parts, 0.1, lambda shares: shares)
    squares = least_error_shares(sizes, parts, 0.1, lambda shares: shares**2)
    assert linear[0] > linear[1]
    assert squares[0] / squares[1] < linear[0] / linear[1]


def test_atoms_are_the_leaves_with_the_same_labels(groupings):
    """Their sizes add up to the leaves, and no two atoms have the same labels."""
    sizes, cells = atoms_of(groupings)
    assert sizes.sum() == 24
    assert len({*zip(*(cell.tolist() for cell in cells), strict=True)}) == len(sizes)
