"""The attacks of the black-box audit, without releases: they accuse nobody who keeps a claim, and notice who does not."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.support.attacks import (
    FALSE_ALARM,
    Claim,
    Guesses,
    Values,
    guesses_of,
    learned,
    log_evidence,
    lower_bound,
    rehearsed,
)

CLAIM = Claim(1.0, 0.1)
RELEASES = 12  # of either table: few enough to go through all that can happen


def of_one_table(right: float, wrong: float) -> Values:
    """Return the probability of every number of right and of wrong guesses about the releases of one table."""
    numbers = np.arange(RELEASES + 1)
    all_right, all_wrong = np.meshgrid(numbers, numbers, indexing="ij")
    rest = RELEASES - all_right - all_wrong
    outcomes = np.stack([all_right, all_wrong, np.maximum(rest, 0)], axis=-1)
    law = stats.multinomial.pmf(outcomes, RELEASES, [right, wrong, 1 - right - wrong])
    return np.where(rest >= 0, law, 0.0)


def refuted(one: tuple[float, float], other: tuple[float, float], false_alarm: float) -> float:
    """Return how often CLAIM is refuted if so large a part of the guesses about either table is right, and wrong."""
    law, evidence = of_all_guesses(one, other)
    return float(law[evidence >= -math.log(false_alarm)].sum())


def of_all_guesses(one: tuple[float, float], other: tuple[float, float]) -> tuple[Values, Values]:
    """Return the probability of every number of right and of wrong guesses, and the evidence against CLAIM that each is."""
    law = of_both_tables(of_one_table(*one), of_one_table(*other))
    right, wrong = np.indices(law.shape)
    possible = right + wrong <= 2 * RELEASES
    return law[possible], log_evidence(Guesses(right[possible], wrong[possible], 2 * RELEASES), CLAIM)


def of_both_tables(one: Values, other: Values) -> Values:
    """Return the probability of every number of right and of wrong guesses about both tables: the convolution."""
    both = np.zeros((2 * RELEASES + 1,) * 2)
    for (right, wrong), probability in np.ndenumerate(one):
        both[right : right + RELEASES + 1, wrong : wrong + RELEASES + 1] += probability * other
    return both


@pytest.mark.parametrize("wrong", [(0.0, 0.0), (0.05, 0.05), (0.2, 0.2), (0.0, 0.25), (0.02, 0.2)])
def test_who_keeps_a_claim_is_refuted_no_more_often_than_is_said(wrong: tuple[float, float]) -> None:
    """At the very edge of (ε, δ) the mean of the evidence is 1, or less where the tables differ, and alarms are rare.

    Summed over all that can happen, with few wrong guesses or many, about one table or both.
    """
    edge = [math.exp(CLAIM.epsilon) * of_other + CLAIM.delta for of_other in reversed(wrong)]
    one, other = zip(edge, wrong, strict=True)
    assert max(sum(one), sum(other)) <= 1
    law, evidence = of_all_guesses(one, other)
    assert law.sum() == pytest.approx(1, rel=1e-9)
    mean = float((law * np.exp(evidence)).sum())
    assert mean == pytest.approx(1, rel=1e-9) if len(set(wrong)) == 1 else mean < 1
    assert all(refuted(one, other, false_alarm) <= false_alarm for false_alarm in (0.2, 0.05, 1e-3))


def test_who_breaks_a_claim_is_refuted() -> None:
    """Where guesses are right far more often than the claim allows a few are enough; what δ allows is never refuted."""
    assert refuted((0.95, 0.01), (0.95, 0.01), 0.05) > 0.8
    assert refuted((1.0, 0.0), (0.9, 0.02), 0.05) > 0.8
    assert refuted((CLAIM.delta, 0.0), (CLAIM.delta, 0.0), 1e-6) == 0.0


@pytest.mark.parametrize(("right", "wrong"), [(0, 0), (30, 30), (40, 0), (300, 40), (390, 2)])
def test_a_lower_bound_is_the_least_epsilon_that_is_not_refuted(right: int, wrong: int) -> None:
    """What lies below it is refuted and itself it is not; nothing is shown by as many wrong guesses as right ones."""
    guesses = Guesses(np.array(right), np.array(wrong), 400)
    bound = lower_bound(guesses, 0.1, FALSE_ALARM)
    assert log_evidence(guesses, Claim(bound, 0.1)) < -math.log(FALSE_ALARM)
    if right <= 40:
        assert bound == 0
    else:
        assert log_evidence(guesses, Claim(bound - 0.01, 0.1)) >= -math.log(FALSE_ALARM)
        assert bound < math.log((right / 400 - 0.1) / (wrong / 400))


def test_guesses_are_counted_by_table_and_direction() -> None:
    """Leaning to the right table is right, to the wrong one wrong, and leaning less than is certain is no guess."""
    one, other = np.array([3.0, 1.0, 0.9, -1.0]), np.array([-2.0, -0.5, 1.0, 5.0])
    guesses = guesses_of(one, other, 1.0)
    assert (guesses.right, guesses.wrong, guesses.of) == (3, 3, 8)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("releases", [60, 100, 140])
def test_a_rehearsed_power_is_the_exact_one(law: str, releases: int) -> None:
    """For one count that differs by one, how often the claim is refuted is that of the sum over all that can happen."""
    tables, scale = (np.array([61.0]), np.array([60.0])), 0.5
    attack = rehearsed(tables, np.array([scale]), law, CLAIM, releases=releases, false_alarm=FALSE_ALARM)
    noise = np.arange(-40, 41)
    weights = np.exp(-np.abs(noise) / scale if law == "laplace" else -((noise / scale) ** 2) / 2)
    below_one = weights[noise < 0].sum() / weights.sum()  # the one table's count, 61, is measured as 60 or less
    numbers = np.arange(2 * releases + 1)
    evidence = log_evidence(Guesses(2 * releases - numbers, numbers, 2 * releases), CLAIM)
    exact = stats.binom.pmf(numbers[evidence >= -math.log(FALSE_ALARM)], 2 * releases, below_one).sum()
    assert attack.certain <= 2.0  # so that every release is guessed
    assert abs(attack.power - exact) <= 5 * math.sqrt(exact * (1 - exact) / 2000) + 1e-4


def noisy(seed: int, releases: int) -> tuple[Values, Values]:
    """Return thirty numbers of each release of two tables that differ in none of them."""
    random = np.random.default_rng(seed)
    one, other = np.rint(random.normal(60, 2, (2, releases, 30)))
    return one, other


def test_what_a_single_number_gives_away_is_learned() -> None:
    """Among thirty numbers one that never varies but between the tables, and one with too little noise, are found."""
    one, other = noisy(1, 200)
    assert lower_bound(learned(one, other, CLAIM), CLAIM.delta, FALSE_ALARM) == 0
    for column, spread in ((3, 0.0), (17, 0.3)):
        random = np.random.default_rng(2)
        leaking = one.copy(), other.copy()
        for number, of in enumerate(leaking):
            of[:, column] = 61 - number + random.normal(0, spread, len(of))
        assert lower_bound(learned(*leaking, CLAIM), CLAIM.delta, FALSE_ALARM) > CLAIM.epsilon


def test_nothing_is_learned_where_there_is_nothing() -> None:
    """Of two hundred audits of releases that are all alike none refutes the claim."""
    guesses = [learned(*noisy(seed, 60), CLAIM) for seed in range(200)]
    assert max(float(log_evidence(of, CLAIM)) for of in guesses) < -math.log(FALSE_ALARM)
