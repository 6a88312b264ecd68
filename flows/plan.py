"""The plan of a release: its levels, noise, bounds and cost, from the spec and the codebooks alone."""

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from typing import Any

from flows.budget import cap_of, composed_epsilon
from flows.guarantee import (
    Guarantee,
    Scheme,
    epsilon_of_series,
    guarantee_for,
    guarantee_of,
    promised_levels,
    scheme_of,
)
from flows.mechanisms import MECHANISMS, Mechanism
from flows.schedule import days, days_of_series, scheduled_id
from flows.spec import AXES, RunKeys, SpecFile, Target
from storage.books import Asked, Books, Claim, Series, Spending
from storage.database import Connection, store
from storage.errors import SpecError, UsageError
from storage.ledger import Reservation, agreed_terms, read_books, users_of_table
from storage.published import published_total
from storage.releases import LevelTerms
from tasks.ingest.codebook import down_to
from tasks.ingest.task import Source, read_ends
from tasks.ingest.trips import Units
from tasks.machine import cores, default_memory
from tasks.noise.accounting import float_above
from tasks.publish.rounding import rounded_down, rounded_up
from tasks.tree.axis import axis_from_codebook
from tasks.tree.branches import memory_for, most_cells
from tasks.tree.order import Tree, alternate
from tasks.validate.bounds import CONFIDENCE, finest_above_noise
from tasks.validate.size import disk_size

_NEXT_DAYS = 3  # of a schedule without an end that a plan shows


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a release would be; nothing in it comes from the confidential table.

    Attributes:
        file: the spec.
        source: where the tables are.
        mechanism: the recipe.
        tree: the axes and their order.
        scheme: what is measured.
        guarantee: what that promises.
        promised: per axis, the axis level at which a unit's records are promised distinct; 0 without a promise.
        levels: the terms of levels 0 to T.
        codebooks: per axis, the sha256 of its file.
    """

    file: SpecFile
    source: Source
    mechanism: Mechanism
    tree: Tree
    scheme: Scheme
    guarantee: Guarantee
    promised: tuple[int, ...]
    levels: tuple[LevelTerms, ...]
    codebooks: dict[str, str]

    @property
    def rho(self) -> Fraction:
        """The whole budget of the release, an exact fraction."""
        return self.guarantee.rho

    @property
    def units(self) -> Units:
        """The bound on contributions."""
        spec = self.file.spec
        keys = spec.privacy
        return Units(spec.input.unit, keys.max_records_per_unit, keys.distinct is not None, keys.total_is_public)

    @property
    def table(self) -> str:
        """The confidential table, by which the ledger knows it again."""
        table = self.source.table
        return f"{table.path.resolve()}::{table.inner}" if table.inner else str(table.path.resolve())

    @property
    def exact_by_choice(self) -> list[str]:
        """What is published exactly although a unit could change it, in words."""
        if not self.file.spec.privacy.invariants:
            return []
        return [
            f"level {level.level}{_where(level)}: every count, published exactly: a unit's place there is not protected"
            for level in self.levels
            if level.is_invariant and not (level.level == 0 and self.file.spec.privacy.total_is_public)
        ]

    @property
    def unprotected(self) -> list[str]:
        """What is published exactly, in words."""
        keys = self.file.spec.privacy
        if not keys.total_is_public:
            return self.exact_by_choice
        many = "one" if keys.max_records_per_unit == 1 else str(keys.max_records_per_unit)
        public = f"level 0: the total number of records (public, since every unit has exactly {many})"
        return [public, *self.exact_by_choice]

    def asked(self) -> Asked:
        """Return what the spec says about its dataset.

        Raises:
            SpecError: its budget is beyond use.
        """
        spec = self.file.spec
        try:
            cap = cap_of(spec.budget.epsilon, spec.budget.delta) if spec.budget else None
        except ValueError as fault:
            raise SpecError(f"budget.{fault}", field="budget.epsilon") from None
        return Asked(spec.dataset, spec.privacy.unit, spec.privacy.neighbours, cap, spec.same_people_as)

    def reservation(self, release_id: str, different_people_from: tuple[str, ...] = ()) -> Reservation:
        """Return the whole release as the ledger reserves it."""
        claim = Claim(
            release=release_id,
            dataset=self.file.spec.dataset,
            accountant=self.guarantee.accountant.name,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            table=self.table,
            unprotected=tuple(self.exact_by_choice),
            different_people_from=different_people_from,
            contributions=self.contributions(),
        )
        return Reservation(self.asked(), self.levels, claim)

    def spending(self, releases: int, delta: float) -> Spending:
        """Return what one release costs and states, or so many that are declared together, these at a given δ."""
        if releases == 1:
            return Spending(self.rho, (), self.guarantee.epsilon, self.guarantee.delta, self.guarantee.tau)
        epsilon = epsilon_of_series(self.guarantee, releases, delta)
        return Spending(self.rho * releases, (), epsilon, delta, self.guarantee.tau * releases)

    def contributions(self) -> dict[str, Any]:
        """Return how many records a unit has, and who sees to it."""
        spec = self.file.spec
        return {
            "max_records_per_unit": spec.privacy.max_records_per_unit,
            "exact_records_per_unit": spec.privacy.total_is_public,
            "distinct": spec.privacy.distinct,
            "bounded_by": "ingest" if spec.input.unit else "promise",
        }

    def stage_terms(self) -> dict[str, Any]:
        """Return what the stages need to know of this plan, as the store keeps it."""
        spec, guarantee = self.file.spec, self.guarantee
        keys = spec.privacy
        return {
            "axes": [axis.name for axis in self.tree.axes],
            "steps": list(self.tree.steps),
            "mechanism": self.mechanism.name,
            "sampler": spec.noise.sampler,
            "keep_vault": spec.keep_vault,
            "keep_noisy_counts": spec.keep_noisy_counts,
            "published_spec": self.file.published(),
            "unprotected": self.unprotected,
            "codebooks": self.codebooks,
            "files": {  # to notice changes; not published
                "spec": str(self.file.path),
                "codebooks": {axis.name: str(axis.codebook.path) for axis in self.source.axes},
            },
            **run_terms(spec.run),
            "csv": spec.release.csv,
            "privacy": {
                "unit": keys.unit,
                "neighbours": keys.neighbours,
                **self.contributions(),
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
                "rho": float(guarantee.rho),
                "accountant": guarantee.accountant.name,
                "sampler": spec.noise.sampler,
                "tau": float_above(guarantee.tau),
                "statement": self.statement(),
            },
        }

    def statement(self) -> str:
        """Return the guarantee in a sentence or two."""
        keys, guarantee = self.file.spec.privacy, self.guarantee
        records = "one record" if keys.max_records_per_unit == 1 else f"{keys.max_records_per_unit} records"
        has = f"exactly {records}" if keys.total_is_public else f"at most {records}"
        change = "replaced by another's" if keys.neighbours == "substitution" else "added or removed"
        told = (
            f"({rounded_up(guarantee.epsilon)}, {guarantee.delta:g})-differentially private for {keys.unit}, which has {has}:"
            f" neighbouring tables differ in the records of one unit, {change}."
        )
        if not self.exact_by_choice:
            return told
        last = max(level.level for level in self.levels if level.is_invariant)
        return (
            f"{told} This holds only between tables that agree on every count of the levels 0 to {last}, which are"
            f" published exactly; in which of their cells a unit is, is not protected at all."
        )


def make_plan(file: SpecFile) -> Plan:
    """Return the plan of a spec. Reads the codebooks; does not read the confidential table.

    Raises:
        SpecError: the mechanism is unknown, a level is not there, or the noise would be beyond use.
        InputError: a table does not exist, or a codebook breaks a rule.
    """
    spec = file.spec
    if spec.mechanism not in MECHANISMS:
        raise SpecError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {spec.mechanism}.", field="mechanism")
    mechanism = MECHANISMS[spec.mechanism]
    source = file.source()
    ends, first = read_ends(source), AXES.index(spec.release.tree)
    tree = _tree({end.name: down_to(end.codebook, end.finest) for end in ends}, first)
    whole = _tree({end.name: end.codebook for end in ends}, first) if spec.privacy.distinct else tree
    _check_fan_out(tree, spec.run.max_memory)
    scheme = scheme_of(spec.privacy, tree, whole, mechanism, spec.noise.sampler)
    guarantee = guarantee_of(scheme)
    return Plan(
        file,
        source,
        mechanism,
        tree,
        scheme,
        guarantee,
        promised_levels(spec.privacy, whole),
        _levels(scheme, guarantee),
        {axis.name: axis.sha256 for axis in source.axes},
    )


def run_terms(keys: RunKeys) -> dict[str, Any]:
    """Return what the stages need to know of how a release is run; nothing that is published depends on it."""
    return {"workers": keys.workers, "max_memory": keys.max_memory}


def _tree(codebooks: dict[str, Any], first: int) -> Tree:
    axes = tuple(axis_from_codebook(name, codebook) for name, codebook in codebooks.items())
    return Tree(axes, alternate([axis.depth for axis in axes], first))


def _check_fan_out(tree: Tree, max_memory: int | None) -> None:
    """Refuse a node with more children than fit in memory: they are measured and optimised together."""
    memory = max_memory or default_memory()
    for level, axis in enumerate(tree.steps):
        own_level = tree.axis_levels(level)[axis]
        children = tree.axes[axis].most_children(own_level)
        if children > most_cells(memory, cores()):
            names = tree.axes[axis].level_names
            one = f"one {names[own_level - 1]}" if own_level else "everything"
            raise SpecError(
                f"run.max_memory must be at least {rounded_up(memory_for(children, cores()) / 1e9, 3)}GB: {one} holds"
                f" {children:,} areas of level {names[own_level]}, got {rounded_down(memory / 1e9, 3)}GB.",
                field="run.max_memory",
                hint="Raise it, or put a level between the two into the codebook.",
            )


def _levels(scheme: Scheme, guarantee: Guarantee) -> tuple[LevelTerms, ...]:
    """Return the terms of all levels: those above the first measured one are exact and take no share of ρ."""
    bounds = scheme.bounds(guarantee.measurements, CONFIDENCE)
    terms = []
    for level, bound in enumerate(bounds):
        exact = level < scheme.first_measured
        measurement = None if exact else guarantee.measurements[level - scheme.first_measured]
        terms.append(
            LevelTerms(
                level=level,
                axes=scheme.tree.level_names(level),
                possible_cells=scheme.tree.possible_cells(level),
                is_invariant=exact,
                rho=measurement.rho if measurement else Fraction(0),
                sigma=measurement.sigma if measurement else 0.0,
                l2_sensitivity_squared=measurement.l2_sensitivity_squared if measurement else 0,
                bound=bound,
                derivation="published exactly" if exact else scheme.derivation(level),
                tau=measurement.tau if measurement else Fraction(0),
            )
        )
    return tuple(terms)


def plan_answer(plan: Plan, target: Target | None = None) -> dict[str, Any]:
    """Return what `trellis plan` says.

    Args:
        plan: the plan.
        target: the error bound whose ε is asked for besides.
    """
    spec = plan.file.spec
    with store() as con:
        books = read_books(con)
        total, source = _public_total(con, books, plan)
    guarantee = plan.guarantee
    answer = {
        "name": spec.name,
        "dataset": spec.dataset,
        "mechanism": spec.mechanism,
        "neighbours": spec.privacy.neighbours,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "rho": float(guarantee.rho),
        "accountant": guarantee.accountant.name,
        "sampler": spec.noise.sampler,
        "tau": float_above(guarantee.tau),
        "statement": plan.statement(),
        "levels": [
            {
                "level": level.level,
                "axes": dict(level.axes),
                "possible_cells": level.possible_cells,
                "rho": float(level.rho),
                "sigma": level.sigma,
                "l2_sensitivity": level.l2_sensitivity,
                "derivation": level.derivation,
                "bound": level.bound,
                "typical_count": total / level.possible_cells if total is not None else None,
            }
            for level in plan.levels
        ],
        "unprotected": plan.unprotected,
        "curve": guarantee.curve(),
        "typical": _typical(plan, total, source),
        "disk": _disk(plan, books, total),
        "schedule": _schedule(plan, books),
        "warnings": _warnings(plan, books),
        "budget": _budget_summary(plan, books),
    }
    if target:
        try:
            wanted = guarantee_for(plan.scheme, target)
        except (SpecError, ValueError) as fault:
            raise UsageError(f"--for: {fault}", field="--for") from None
        answer["for"] = target.model_dump() | {"epsilon": wanted.epsilon, "rho": float(wanted.rho)}
    return answer


def _public_total(con: Connection, books: Books, plan: Plan) -> tuple[int | None, str]:
    """Return a public guess of the total and where it is from: the spec, or the last release about the same people."""
    spec = plan.file.spec
    if spec.expected_total is not None:
        return spec.expected_total, "expected_total"
    account = books.account(spec.dataset) or books.account(spec.same_people_as)
    for release in reversed(account.claims if account else {}):
        total = published_total(con, release)
        if total is not None:
            return total, release
    return None, ""


def _typical(plan: Plan, total: int | None, source: str) -> dict[str, Any] | None:
    if total is None:
        return None
    sigmas = plan.scheme.sigmas(plan.guarantee.measurements)
    finest = finest_above_noise(total, sigmas, [level.possible_cells for level in plan.levels])
    return {"total": total, "from": source, "finest_above_noise": finest}


def _disk(plan: Plan, books: Books, total: int | None) -> dict[str, Any]:
    """Return the bytes that a release is expected to leave on disk, or may at most where nothing is known of the total."""
    codes = [codes for axis in plan.tree.axes for codes in axis.codes]
    size = disk_size(
        [level.possible_cells for level in plan.levels],
        plan.scheme.sigmas(plan.guarantee.measurements),
        total,
        finest_areas=plan.tree.sizes(plan.tree.depth),
        code_bytes=sum(int(of_level.str.len_bytes().sum()) / len(of_level) + 1 for of_level in codes),
        noisy_counts_kept=plan.file.spec.keep_noisy_counts,
        store_is_new=not books.charged_to,
        csv=plan.file.spec.release.csv,
    )
    return {
        "shards": size.shards,
        "published": size.published,
        "store": size.store,
        "total": size.total,
        "upper_bound": size.upper_bound,
    }


def _schedule(plan: Plan, books: Books) -> dict[str, Any] | None:
    """Return the days of a schedule: those that a series was declared for, or would be, or else the next ones."""
    spec, keys = plan.file.spec, plan.file.spec.schedule
    if keys is None:
        return None
    declared = declared_series(books, spec.dataset, spec.name)
    now = datetime.now(UTC)
    if declared:
        ids: list[str] = list(declared.releases)
    elif keys.until:
        ids = [scheduled_id(spec.name, day) for day in days_of_series(keys.cron, keys.timezone, keys.until, now)]
    else:
        ids = [scheduled_id(spec.name, day) for day in islice(days(keys.cron, keys.timezone, now), _NEXT_DAYS)]
    return keys.model_dump() | {"declared": declared is not None, "releases": ids}


def declared_series(books: Books, dataset: str, name: str) -> Series | None:
    """Return the last series of a name that was declared for a dataset's people."""
    account = books.account(dataset)
    of_name = [series for series in account.series.values() if series.name == name] if account else []
    return of_name[-1] if of_name else None


def _warnings(plan: Plan, books: Books) -> list[str]:
    users = users_of_table(books, plan.asked(), plan.table)
    return [
        f"input.table was used by dataset {user}: say same_people_as: {user} in the spec, or release with"
        " --different-people if it holds other people."
        for user in users
    ]


def _budget_summary(plan: Plan, books: Books) -> dict[str, Any]:
    """Return the cap, what is spent before a release, and what would be after it."""
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    before = account.spendings if account else []
    cap, scheduled = terms.cap, _schedule(plan, books)
    releases = len(scheduled["releases"]) if scheduled and scheduled["until"] and not scheduled["declared"] else 1
    cost = [] if scheduled and scheduled["declared"] else [plan.spending(releases, cap.delta)]
    return {
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "rho": float(cap.rho)},
        "before": _stand(before, cap.delta),
        "after": _stand([*before, *cost], cap.delta),
    }


def _stand(spendings: list[Spending], delta: float) -> dict[str, float]:
    rho = sum((spending.rho for spending in spendings), Fraction(0))
    return {"epsilon": composed_epsilon(spendings, delta), "rho": float(rho)}


def _where(level: LevelTerms) -> str:
    names = ", ".join(f"{axis} {name or 'all'}" for axis, name in level.axes.items())
    return f" ({names})" if level.level else ""
