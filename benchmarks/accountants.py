"""Compare the accountants at the same (ε, δ): ρ, and the noise in proportion to the lemma's. `make bench`."""

from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, uniform

DELTA = 1e-8
LEVELS = 6  # below an exact root, under substitution of one record


def main() -> None:
    """Print a line per ε and accountant."""
    allocation = Allocation(uniform(LEVELS), (2,) * LEVELS)
    for epsilon in (0.1, 1.0, 4.0):
        rho = {name: float(ACCOUNTANTS[name].largest_rho(allocation, epsilon, DELTA)) for name in ACCOUNTANTS}
        for name, value in rho.items():
            noise = (rho["lemma"] / value) ** 0.5
            print(f"epsilon {epsilon:g}, delta {DELTA:g}, {name}: rho {value:.4g}, sigma {noise:.2f} of the lemma's")


if __name__ == "__main__":
    main()
