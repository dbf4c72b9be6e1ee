"""Savings from changes on the two-sided step, alone and together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.derive.bounds import TwoSided
from advisor.model import Saving
from advisor.replay.changes import Edit
from advisor.rules.contract import Change
from advisor.rules.saving import Claim, bound_saving, combined_saving, spares_gpu


def two_sided(host: int, gpu: int, wait: int = 0) -> TwoSided:
    step = max(host, gpu) + wait
    return TwoSided(-1, 1, step, host, gpu, wait, step, host)


def test_a_shorter_kernel_in_a_host_bound_step_saves_nothing() -> None:
    saving = bound_saving(Change(gpu_ns=300), two_sided(host=1000, gpu=500))
    assert (saving.low_ns, saving.expected_ns, saving.high_ns, saving.basis) == (0, 0, 300, "bound")


def test_a_shorter_kernel_in_a_gpu_bound_step_saves_until_the_host_rules() -> None:
    assert bound_saving(Change(gpu_ns=300), two_sided(host=100, gpu=1000)).expected_ns == 300
    assert bound_saving(Change(gpu_ns=300), two_sided(host=900, gpu=1000)).expected_ns == 100


def test_waits_vanish_whole_but_never_more_than_there_are() -> None:
    step = two_sided(host=400, gpu=600, wait=200)
    assert bound_saving(Change(wait_ns=150), step).expected_ns == 150
    assert bound_saving(Change(wait_ns=900), step).expected_ns == 200


def test_high_is_the_limit_and_leaves_room_for_the_gpu_work() -> None:
    step = two_sided(host=1000, gpu=600)
    assert bound_saving(Change(host_ns=700), step).high_ns == 400  # 600 ns of GPU work stay
    assert bound_saving(Change(host_ns=700, limit_ns=50), step) == Saving(0, 50, 50, "bound")
    assert bound_saving(Change(host_ns=100, gpu_ns=100), step).high_ns == 200


def test_what_the_limit_exceeds_the_change_by_is_gpu_time_where_the_change_takes_any() -> None:
    gpu_bound = two_sided(host=100, gpu=1000)
    assert bound_saving(Change(gpu_ns=300, limit_ns=500), gpu_bound) == Saving(0, 300, 500, "bound")
    assert bound_saving(Change(limit_ns=500), gpu_bound) == Saving(0, 0, 500, "bound")  # nothing certain, but possible
    # Of host time or waits alone, however much: 700 ns of GPU work stay in the way.
    balanced = two_sided(host=1000, gpu=700)
    assert bound_saving(Change(host_ns=200, limit_ns=900), balanced).high_ns == 300
    assert bound_saving(Change(wait_ns=100, limit_ns=900), two_sided(host=600, gpu=700, wait=100)).high_ns == 100
    assert bound_saving(Change(host_ns=200, gpu_ns=100, limit_ns=500), balanced).high_ns == 500
    assert bound_saving(Change(gpu_ns=300, limit_ns=100), gpu_bound).high_ns == 100


def test_together_is_less_than_the_sum_and_at_least_the_largest() -> None:
    step = two_sided(host=100, gpu=1000)
    changes = [Change(gpu_ns=400), Change(gpu_ns=400)]
    both = combined_saving([Claim(bound_saving(change, step), change) for change in changes], step)
    assert both is not None and both.expected_ns == 640  # 0.6 * 0.6 of the GPU work is left


def test_together_sees_that_fixes_need_one_another() -> None:
    step = two_sided(host=1000, gpu=1000)
    changes = [Change(gpu_ns=500), Change(host_ns=500)]
    alone = [bound_saving(change, step) for change in changes]
    assert [saving.expected_ns for saving in alone] == [0, 0]
    both = combined_saving([Claim(*pair) for pair in zip(alone, changes, strict=True)], step)
    assert both is not None and both.expected_ns == 500


def test_savings_without_a_change_take_their_share_of_what_is_left() -> None:
    step = two_sided(host=100, gpu=1000)
    change = Change(gpu_ns=500)
    fixed = Saving(200, 400, 600, "replay")
    both = combined_saving([Claim(bound_saving(change, step), change), Claim(fixed)], step)
    assert both is not None
    assert both.expected_ns == 500 + 200  # 40 % of the 500 that are left
    assert both.low_ns == 200 and both.high_ns == 800 and both.basis == "bound"


def test_nothing_claimed() -> None:
    assert combined_saving([], two_sided(10, 10)) is None


def test_no_two_claims_on_host_time_leave_less_than_the_work_of_the_gpu() -> None:
    step = two_sided(host=1000, gpu=200)
    wait = Claim(Saving(700, 800, 800, "bound"), spares_gpu=False)
    both = combined_saving([wait, wait], step)
    assert both is not None and (both.low_ns, both.expected_ns, both.high_ns) == (700, 800, 800)
    kernels = Claim(Saving(0, 50, 100, "bound"))
    more = combined_saving([wait, wait, kernels], step)
    assert more is not None and (more.expected_ns, more.high_ns) == (850, 900)


def test_what_spares_the_gpu() -> None:
    host = Edit(intervals=(np.array([0]), np.array([1])))
    gpu = Edit(work=np.array([True]), vanish=True)
    assert not spares_gpu(Change(host_ns=5, limit_ns=9), [host])
    assert spares_gpu(Change(host_ns=5), [host, gpu]) and spares_gpu(Change(gpu_ns=5), []) and spares_gpu(None, [])


amounts = st.integers(0, 10**12)


@given(amounts, amounts, amounts, st.lists(st.tuples(amounts, amounts, amounts, st.none() | amounts), max_size=5))
def test_no_saving_leaves_the_step(host: int, gpu: int, wait: int, parts: list[tuple[int, int, int, int | None]]) -> None:
    step = two_sided(host, gpu, wait)
    changes = [Change(*part) for part in parts]
    savings = [bound_saving(change, step) for change in changes]
    for saving in savings:
        assert 0 <= saving.low_ns <= saving.expected_ns <= saving.high_ns <= step.step_ns
    both = combined_saving([Claim(*pair) for pair in zip(savings, changes, strict=True)], step)
    if savings:
        assert both is not None
        assert 0 <= both.low_ns <= both.expected_ns <= both.high_ns <= step.step_ns
        assert both.expected_ns >= max(saving.expected_ns for saving in savings)
        assert both.high_ns >= max(saving.high_ns for saving in savings)
    else:
        assert both is None


@pytest.mark.parametrize("step_ns", [0, 1])
def test_a_step_of_nothing(step_ns: int) -> None:
    step = two_sided(step_ns, step_ns)
    assert bound_saving(Change(1, 1, 1), step).high_ns <= step_ns
