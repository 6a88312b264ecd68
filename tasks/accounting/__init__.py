"""Privacy accounting: sensitivities, shares of the budget, and the conversion between noise and (ε, δ).

`epsilon` is > 0 and finite, `delta` in (0, 1), `rho` >= 0, and a `scale` of noise finite and > 0, records; a ValueError refuses others.
"""
