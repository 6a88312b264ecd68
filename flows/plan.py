"""The plan of a release: its levels, noise, bounds and cost, from the spec and the codebooks alone."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flows.mechanisms import MECHANISMS, Mechanism
from flows.spec import AXES, BudgetKeys, PrivacyKeys, SpecFile
from storage.database import store
from storage.errors import SpecError
from storage.ledger import Account, DatasetTerms, agreed_terms, read_accounts
from storage.releases import LevelTerms
from tasks.ingest.codebook import down_to
from tasks.ingest.task import Source, read_ends
from tasks.noise.accounting import ACCOUNTANT, epsilon_from_rho, rho_from_epsilon
from tasks.noise.allocation import scale_for, uniform
from tasks.noise.sensitivity import l2_sensitivity_squared
from tasks.tree.axis import axis_from_codebook
from tasks.tree.order import Tree, alternate


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a release would be; nothing in it comes from the confidential table.

    Attributes:
        file: the spec.
        source: where the tables are.
        mechanism: the recipe.
        tree: the axes and their order.
        rho: the whole budget of the release, an exact fraction.
        levels: the terms of levels 0 to T.
        codebooks: per axis, the sha256 of its file.
    """

    file: SpecFile
    source: Source
    mechanism: Mechanism
    tree: Tree
    rho: Fraction
    levels: tuple[LevelTerms, ...]
    codebooks: dict[str, str]

    @property
    def unprotected(self) -> list[str]:
        """What is published exactly, in words."""
        return ["level 0: the total number of records (public, since every unit has exactly one)"]

    def budget_terms(self, account: Account | None) -> DatasetTerms:
        """Return the dataset's terms: the ledger's, or for a first release those of the spec.

        Raises:
            SpecError: the spec's unit, neighbours or budget are not the dataset's.
        """
        spec = self.file.spec
        asked = None
        if spec.budget:
            cap = spec.budget.epsilon, spec.budget.delta
            asked = DatasetTerms(
                spec.dataset, spec.privacy.unit, spec.privacy.neighbours, *cap, cap_rho=_rho("budget", spec.budget)
            )
        return agreed_terms(account, asked, unit=spec.privacy.unit, neighbours=spec.privacy.neighbours)

    def stage_terms(self) -> dict[str, Any]:
        """Return what the stages need to know of this plan, as the store keeps it."""
        privacy = self.file.spec.privacy
        return {
            "axes": [axis.name for axis in self.tree.axes],
            "steps": list(self.tree.steps),
            "mechanism": self.mechanism.name,
            "keep_vault": self.file.spec.keep_vault,
            "published_spec": self.file.published(),
            "unprotected": self.unprotected,
            "codebooks": self.codebooks,
            "privacy": {
                "unit": privacy.unit,
                "neighbours": privacy.neighbours,
                "max_records_per_unit": privacy.max_records_per_unit,
                "epsilon": privacy.epsilon,
                "delta": privacy.delta,
                "rho": float(self.rho),
                "accountant": ACCOUNTANT,
            },
        }


def make_plan(file: SpecFile) -> Plan:
    """Return the plan of a spec. Reads the codebooks; does not read the confidential table.

    Raises:
        SpecError: the mechanism is unknown, or the noise would be beyond use.
        InputError: a table does not exist, or a codebook breaks a rule.
    """
    spec = file.spec
    if spec.mechanism not in MECHANISMS:
        raise SpecError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {spec.mechanism}.", field="mechanism")
    mechanism = MECHANISMS[spec.mechanism]
    source = file.source()
    axes = tuple(axis_from_codebook(end.name, down_to(end.codebook, end.finest)) for end in read_ends(source))
    tree = Tree(axes, alternate([axis.depth for axis in axes], AXES.index(spec.release.tree)))
    rho = _rho("privacy", spec.privacy)
    codebooks = {axis.name: axis.sha256 for axis in source.axes}
    return Plan(file, source, mechanism, tree, rho, _levels(tree, rho, mechanism), codebooks)


def _rho(field: str, keys: PrivacyKeys | BudgetKeys) -> Fraction:
    try:
        return rho_from_epsilon(keys.epsilon, keys.delta)
    except ValueError as fault:
        raise SpecError(f"{field}.{fault}", field=f"{field}.epsilon") from None


def _levels(tree: Tree, rho: Fraction, mechanism: Mechanism) -> tuple[LevelTerms, ...]:
    """Return the terms of all levels: the root is the public total, the others share ρ."""
    square = l2_sensitivity_squared()
    shares = uniform(rho, tree.depth)
    try:
        sigmas = [0.0, *(scale_for(share, square) for share in shares)]
    except ValueError as fault:
        raise SpecError(f"privacy.epsilon: {fault}", field="privacy.epsilon") from None
    possible = [tree.possible_cells(level) for level in range(tree.depth + 1)]
    bounds = mechanism.bounds(sigmas, possible)
    root = LevelTerms(
        level=0,
        axes=tree.level_names(0),
        possible_cells=1,
        is_invariant=True,
        rho=Fraction(0),
        sigma=0.0,
        l2_sensitivity_squared=0,
        bound=0.0,
    )
    measured = (
        LevelTerms(
            level=level,
            axes=tree.level_names(level),
            possible_cells=possible[level],
            is_invariant=False,
            rho=share,
            sigma=sigmas[level],
            l2_sensitivity_squared=square,
            bound=bounds[level],
        )
        for level, share in enumerate(shares, start=1)
    )
    return root, *measured


def plan_answer(plan: Plan) -> dict[str, Any]:
    """Return what `trellis plan` says."""
    spec = plan.file.spec
    with store() as con:
        account = read_accounts(con).get(spec.dataset)
    terms = plan.budget_terms(account)
    return {
        "name": spec.name,
        "dataset": spec.dataset,
        "mechanism": spec.mechanism,
        "epsilon": spec.privacy.epsilon,
        "delta": spec.privacy.delta,
        "rho": float(plan.rho),
        "levels": [
            {
                "level": level.level,
                "axes": dict(level.axes),
                "possible_cells": level.possible_cells,
                "rho": float(level.rho),
                "sigma": level.sigma,
                "l2_sensitivity": level.l2_sensitivity,
                "bound": level.bound,
            }
            for level in plan.levels
        ],
        "unprotected": plan.unprotected,
        "budget": _budget_summary(terms, account.spent if account else Fraction(0), plan.rho),
    }


def _budget_summary(terms: DatasetTerms, before: Fraction, cost: Fraction) -> dict[str, dict[str, float]]:
    """Return a dataset's cap, what is spent before a release, and what would be after it."""
    delta = terms.cap_delta
    return {
        "cap": {"epsilon": terms.cap_epsilon, "delta": delta, "rho": float(terms.cap_rho)},
        "before": {"epsilon": epsilon_from_rho(before, delta), "rho": float(before)},
        "after": {"epsilon": epsilon_from_rho(before + cost, delta), "rho": float(before + cost)},
    }
