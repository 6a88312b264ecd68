"""Releases without any numbers: made-up mechanisms, and the records that their steps lead to, with shards that hold nothing."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

from hypothesis import strategies as st

from flows.run.steps import Cuts, next_steps
from storage.ledger.accounts import Charge
from storage.record import Record
from storage.releases.parts import Part
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Branch, Shard, by_kind
from storage.releases.terms import FileTerms, Intervals, RunTerms, Terms
from tasks.mechanisms import EVERY_CELL, MECHANISMS, Mechanism
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.reconcile import UpDown
from tasks.optimize.shrink import Shrink
from tasks.settle.task import Calibrate, Together
from tasks.sizes.estimators import Sizes
from tasks.tree.branches import branch_name
from tasks.tree.views import AddUp, every_level, finest_level
from tasks.unbiased.task import Unbiased
from tasks.work.order import Step
from tests.support.facts import PRIVACY
from tests.support.universe import universe_of

TREES = {depth: universe_of([[("a",) * depth]], [0] * depth).tree for depth in range(1, 6)}
MANY, FEW = 10**9, (1, 4, 30_000)  # cells that a branch may have: so many that nothing is cut, and so few that much is


@st.composite
def mechanisms(draw):
    """Draw a mechanism of the table, or any combination of views, cells, repair and finish that mechanisms may have."""
    if draw(st.booleans()):
        return MECHANISMS[draw(st.sampled_from(list(MECHANISMS)))]
    cells = draw(st.sampled_from(["survivors", "universe", "records", "views"]))
    if cells == "views":
        views = draw(st.sampled_from([every_level, finest_level]))
        return Mechanism("made_up", EVERY_CELL, views, cells, repair={}, finish=Together())
    if cells != "survivors":
        return Mechanism("made_up", EVERY_CELL, finest_level, cells, repair={}, finish=AddUp())
    second_pass, shrinks = MECHANISMS["inftda_reconciled"].second_pass, MECHANISMS["inftda_shrunk"].shrinks
    finishes = [None, second_pass, shrinks, Calibrate(), Calibrate(second_pass), Calibrate(shrinks)]
    return Mechanism(
        name="made_up", laws=EVERY_CELL, views=every_level, cells=cells, repair={"any": nearest_in_chebyshev},
        finish=draw(st.sampled_from(finishes)),
    )  # fmt: skip


def new_record(mechanism, depth, exact=0):
    """Return the record of a release that has been reserved, and of which nothing is drawn; so many coarse levels are exact."""
    first, sums = mechanism.views(TREES[depth])[0].number, isinstance(mechanism.finish, AddUp | Together | Sizes)
    levels = []
    for level in range(depth + 1):
        is_summed = sums and level < first
        is_exact = not is_summed and (level < first or (level < first + exact and level < depth))
        rho, is_noisy = Fraction(1, 8), not (is_summed or is_exact)
        levels.append(Part(level, {}, None, is_exact, rho * is_noisy, 2.0 * is_noisy, 1 * is_noisy, None))
        levels[-1] = replace(levels[-1], is_summed=is_summed)
    views = []
    if mechanism.measures_views:
        views = [Part(depth + 1, {}, None, False, Fraction(1, 8), 2.0, 1, None, view="one_more")]
    release = Release("one", "one", "people", "running", "", "", "", TERMS, "", tuple(levels), None, tuple(views))
    charged = [of for of in release.parts if of.is_charged]
    charges = {of.level: Charge("one", of.level, "reserved", of.rho, of.sigma, 1) for of in charged}
    return Record(release, charges, {}, by_kind([]))


@dataclass(repr=False)
class Followed:
    """A release whose steps are followed in random order: which is next, what it makes, and where branches are cut."""

    mechanism: Mechanism
    record: Record
    random: Random
    cuts: Cuts = field(default_factory=Cuts)
    running: list[Step] = field(default_factory=list)
    _begun: set[Step] = field(default_factory=set)

    def __repr__(self):
        of, levels = self.mechanism, self.record.release.levels
        kinds = "".join("sum " if terms.is_summed else "exact " if terms.is_invariant else "drawn " for terms in levels)
        return (
            f"<{of.name}: {of.views.__name__}, {of.cells}, {type(of.finish).__name__}; {kinds}; {self.cuts.most_cells}>"
        )

    def next(self, only=None):
        """Return the steps that come next."""
        return next_steps(self.mechanism, self.record, only, self.cuts)

    def turn(self, only=None, failing=0.0):
        """Begin a step, cut a branch, or let a step end, whichever comes; return whether there was anything to do."""
        steps = [step for step in self.next(only) if step not in self._begun]
        choice = self.random.choice([*steps, *self.running]) if steps or self.running else None
        if choice is None:
            return False
        if choice.kind == "cut":
            self.cut(choice)
        elif choice in self.running:
            self.running.remove(choice)
            if self.random.random() >= failing:
                self.record = self.record.with_shards(self.made_by(choice))
        else:
            self.begin(choice)
        return True

    def begin(self, step):
        """Begin a step, with the charge of what it draws marked."""
        self._begun.add(step)
        self.running.append(step)
        charge = self.record.charges.get(step.level) if step.kind == "measure" else None
        if charge and charge.state == "reserved":
            self.record = self.record.with_drawing(charge.level)

    def crash(self):
        """Lose all that is not recorded, and go on where there is more memory, or less."""
        self.running.clear()
        self._begun.clear()
        self.cuts = Cuts(self.random.choice([None, MANY, *FEW]))

    def cut(self, step):
        """Cut a branch into up to three, or let it go on whole."""
        parts = slices(self.record.shards["counts"][step.level, step.branch].rows, self.random)
        if len(parts) == 1:
            self.cuts = replace(self.cuts, whole=self.cuts.whole | {(step.level, step.branch)})
            return
        parent = "" if step.branch == TRUNK else step.branch
        names = [branch_name(number, parent) for number in range(len(parts))]
        named = zip(names, parts, strict=True)
        new = {name: Branch(name, step.branch, step.level, of.start, of.stop, {}) for name, of in named}
        branches = {**self.record.branches, **new}
        self.record = replace(self.record, branches={name: branches[name] for name in sorted(branches)})

    def made_by(self, step):
        """Return what a step makes."""
        levels, branch = self.record.levels_of(step.branch), step.branch
        match step.kind:
            case "measure":
                return [Shard("noisy", step.level, branch, "", self.random.randrange(9))]
            case "repair" | "sum":
                nodes = self.random.choice([0, 1, 2, 3, 6, 6]) if step.level else 1
                below = nodes * self.random.choice([1, 3, 20_000]) if step.level < self.record.finest else 0
                return [Shard("counts", step.level, branch, "", nodes, below)]
            case "estimate":
                above = [] if branch == TRUNK else [levels[0] - 1]
                return [Shard("estimates", level, branch, "") for level in [*levels, *above]]
            case "settle":
                return [Shard("settled", level, branch, "", 1) for level in levels]
            case "gather":
                return [Shard("statistics", step.level, branch, "")]
            case "fit":
                return [Shard("prior", step.level, branch, "")]
            case "share":
                return [Shard("settled", step.level, branch, "", 1)]
            case "calibrate":
                numbers = [terms.level for terms in self.record.release.parts]
                places = [(level, name) for level in numbers for name in self.record.branches_of(level)]
                return [Shard("calibrated", level, name, "", 1) for level, name in places]
            case "together" if isinstance(self.mechanism.finish, Unbiased | Sizes):
                return [Shard("counts", self.record.finest, branch, "", 1)]
            case "together":
                return [Shard("counts", of.level, branch, "", 1) for of in self.record.release.parts]
            case _:
                raise TypeError(step)

    def is_released(self):
        """Return whether every level is, in all of its branches, by the finish where the mechanism has one."""
        record, finish = self.record, self.mechanism.finish
        last = record.shards["calibrated"] if isinstance(finish, Calibrate) else record.shards["counts"]
        last = record.shards["settled"] if isinstance(finish, UpDown | Shrink) else last
        numbers = [terms.level for terms in self.record.release.parts]
        places = {(level, name) for level in numbers for name in self.record.branches_of(level)}
        return set(last) == set(self.record.released) == places


@st.composite
def beginnings(draw):
    """Draw a release of which nothing is drawn."""
    mechanism, depth = draw(mechanisms()), draw(st.sampled_from([1, 2, 3, 3, 4, 4, 5]))
    record = new_record(mechanism, depth, draw(st.integers(0, 2)))
    cuts = Cuts(draw(st.sampled_from([None, MANY, *FEW, *FEW, *FEW])))
    return Followed(mechanism, record, draw(st.randoms(use_true_random=True)), cuts)


def line_of(record, branch):
    """Return a branch and all that hold it, up to the trunk."""
    line = [branch]
    while line[-1] != TRUNK:
        line.append(record.branches[line[-1]].parent)
    return line


def slices(nodes, random):
    """Return one to three contiguous slices of some nodes, at least two."""
    inner = sorted(random.sample(range(1, nodes), min(random.randrange(3), nodes - 1)))
    return [slice(*ends) for ends in zip([0, *inner], [*inner, nodes], strict=True)]


TERMS = Terms(
    axes=("home",), steps=(0,), mechanism="made_up", priority=None, sampler="opendp", keep_vault=False,
    keep_noisy_counts=True, published_spec={}, unprotected=(), codebooks={}, unlisted=(), waived=(), csv=None,
    records=False, noisy_counts=None, intervals=Intervals(confidence=0.9), privacy=PRIVACY,
    run=RunTerms("threads", None), files=FileTerms("spec.yaml", {}),
)  # fmt: skip
