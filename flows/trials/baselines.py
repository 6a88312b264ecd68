"""Baselines of comparisons: published mechanisms that others are measured against. No release is made by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from flows.planning.compatibility import check_listed
from flows.planning.plan import Plan
from flows.planning.scheme import check_leaves
from flows.trials.contestants import Contestant
from flows.trials.nested_baselines import nested_entry
from flows.trials.range_baselines import noisy_nodes_entry, sine_entry
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.mechanisms import MECHANISMS, MOST_SETTLED, Mechanism
from tasks.unbiased.eigen_design import MOST_LEAVES

_ITS_OWN_SHARES = "its groupings have shares of their own"
_BY_NUMBER = "its noise follows from the number of records alone"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline.

    Attributes:
        mechanism: what it measures, how large its universe may be, and what of the spec's privacy it does not take: a mechanism's
            choices, under the name of the baseline.
        enter: from the plan of a spec, the mechanism, a name and an ε to what is tried.
    """

    mechanism: Mechanism
    enter: Callable[[Plan, Mechanism, str, float], Contestant]


_LAPLACE = replace(
    MECHANISMS["gaussian"], name="laplace", laws={"laplace": LAPLACE}, bounds=None, most_leaves=MOST_SETTLED
)
_HAY = replace(
    MECHANISMS["cbdp"],
    name="hay",
    laws={"laplace": LAPLACE},
    refused={**MECHANISMS["cbdp"].refused, "split": _ITS_OWN_SHARES},
)
_BINARY_TREE = replace(MECHANISMS["hierarchical"], name="binary_tree", most_leaves=MOST_SETTLED)
_EIGEN_DESIGN = replace(
    MECHANISMS["gaussian"],
    name="eigen_design",
    laws={"gaussian": GAUSSIAN},
    bounds=None,
    most_leaves=MOST_LEAVES,
    refused={**MECHANISMS["gaussian"].refused, "distinct": _BY_NUMBER},
)
_GROWING = Fraction(2 ** (1 / 3))

# laplace: Dwork, McSherry, Nissim and Smith (2006); hay: Hay, Rastogi, Miklau and Suciu (2010); its geometric shares: Cormode,
# Procopiuc, Srivastava, Shen and Yu (2012); binary_tree: Chan, Shi and Song (2011); eigen_design: Li and Miklau (2012).
# docs/mechanisms.md describes them.
BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "laplace": Baseline(_LAPLACE, nested_entry),
        "hay": Baseline(_HAY, nested_entry),
        "hay:pruned": Baseline(_HAY, partial(nested_entry, is_pruned=True)),
        "hay:geometric": Baseline(_HAY, partial(nested_entry, ratio=_GROWING)),
        "hay:pruned_geometric": Baseline(_HAY, partial(nested_entry, ratio=_GROWING, is_pruned=True)),
        "binary_tree": Baseline(_BINARY_TREE, noisy_nodes_entry),
        "eigen_design": Baseline(_EIGEN_DESIGN, sine_entry),
    }
)


def baseline_entry(plan: Plan, name: str, epsilon: float) -> Contestant:
    """Return a baseline at an ε; neighbours and records per unit are the spec's.

    Raises:
        SpecError: it cannot be tried on the spec's universe, or not at this ε.
    """
    baseline, spec = BASELINES[name], plan.file.spec
    check_listed(spec, baseline.mechanism)
    check_leaves(spec, plan.tree, baseline.mechanism)
    return baseline.enter(plan, baseline.mechanism, name, epsilon)
