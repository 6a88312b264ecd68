"""What is measured of group sizes, by the names that terms and manifests give it."""

from collections.abc import Mapping
from types import MappingProxyType

from tasks.sizes.statistics import CHAIN, SIZES, TAILS, Statistic

STATISTICS: Mapping[str, Statistic] = MappingProxyType({of.name: of for of in (TAILS, SIZES, CHAIN)})
