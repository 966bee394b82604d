"""Caches of the process: what is evicted first."""

from indextables.cache import Cache


def filled(count: int) -> Cache[int, int]:
    cache = Cache[int, int]()
    for number in range(count):
        cache.put(number, number)
    return cache


def test_looking_at_all_values_is_no_use_of_them() -> None:
    cache = filled(10)
    cache.get(0)
    assert cache.discard(lambda key, _: key == 5) == [5]
    assert cache.evict_over(lambda _: (1,), (9,)) == []
    assert cache.evict_over(lambda _: (1,), (7,)) == [1, 2]
    assert cache.has(0)


def test_sums_over_a_limit_are_reduced_with_some_slack() -> None:
    cache = filled(100)
    assert cache.evict_over(lambda value: (1, value), (100, 4950), slack=0.25) == []
    assert cache.evict_over(lambda value: (1, value), (100, 4949), slack=0.25) == list(range(51))
    assert cache.evict_over(lambda value: (1, value), (100, 4949), slack=0.25) == []


def test_the_last_value_is_retained() -> None:
    cache = filled(3)
    assert cache.evict_over(lambda _: (1, 100), (5, 10)) == [0, 1]
    assert cache.evict_over(lambda _: (1, 100), (5, 10)) == []
    assert filled(0).evict_over(lambda _: (1,), (0,)) == []
