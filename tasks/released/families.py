"""The estimate of a release, by its family."""

from tasks.released.estimate import Estimate
from tasks.released.sizes import SizesEstimate
from tasks.released.sources.protocol import Source
from tasks.released.sources.published import FolderSource
from tasks.released.together import TogetherEstimate
from tasks.released.unbiased import CountedOnly, UnbiasedEstimate
from tasks.released.walked import WalkedEstimate


def estimate_of(source: Source) -> Estimate:
    """Return what a release says about its counts. Nothing else asks which family it is of."""
    if source.covariance:
        is_unknown = isinstance(source, FolderSource) and not source.folder.has_tree
        return CountedOnly(source) if is_unknown else UnbiasedEstimate(source)
    if source.statistic:
        return SizesEstimate(source)
    return TogetherEstimate(source) if source.is_together else WalkedEstimate(source)
