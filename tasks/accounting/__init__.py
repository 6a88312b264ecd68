"""Privacy accounting: sensitivities, shares of the budget, and the conversion between noise and (ε, δ)."""
