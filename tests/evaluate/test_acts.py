"""One table says how safe an act is, for all rules."""

from __future__ import annotations

import pytest

from sysperf.evaluate.acts import acts_of, check_acts, settled
from sysperf.evaluate.fix_check import check_fix
from sysperf.model.errors import RuleError
from sysperf.model.rule import Advice, Env, Sysctl

ACTS = {
    "set:OMP_NUM_THREADS": {"safety": "caution", "numerics": True},
    "set:NCCL_DEBUG": {"safety": "safe", "numerics": False},
    "sysctl:vm.swappiness": {"safety": "caution", "numerics": False},
}


def test_a_fix_takes_its_safety_from_the_table() -> None:
    """The most careful of its acts counts, and one that can change results makes the whole do so."""
    fix = settled(Env(set={"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "WARN"}), ACTS)

    assert (fix.safety, fix.numerics) == ("caution", True)
    assert settled(Env(set={"NCCL_DEBUG": "WARN"}), ACTS).safety == "safe"
    assert settled(Env(set={"OTHER": "1"}), ACTS).safety == "manual"


def test_a_fix_that_says_less_than_the_table_is_refused() -> None:
    """Neither `safe` for what is `caution`, nor silence about results that may change; more careful is allowed."""
    with pytest.raises(RuleError, match="is `caution` in the table"):
        check_acts(Sysctl(key="vm.swappiness", value=10, safety="safe"), ACTS)
    with pytest.raises(RuleError, match="can change results"):
        check_acts(Env(set={"OMP_NUM_THREADS": "4"}, safety="caution"), ACTS)
    check_acts(Sysctl(key="vm.swappiness", value=10, safety="manual"), ACTS)
    check_acts(Env(set={"OMP_NUM_THREADS": "4"}, safety="caution", numerics=True), ACTS)


def test_a_typed_fix_has_its_acts_by_itself() -> None:
    """An advice has none."""
    assert list(acts_of(Advice(by="package"))) == []
    assert list(acts_of(Env(set={"A": "1"}, unset=("B",)))) == ["set:A", "unset:B"]


@pytest.mark.parametrize("row", [{"safety": "safe"}, {"safety": "fine", "numerics": False}, {"safety": "safe", "numerics": True}])
def test_a_wrong_row_is_refused(row: dict[str, object]) -> None:
    """What can change results is never `safe`, in the table neither."""
    with pytest.raises(RuleError, match="table `acts`"):
        check_acts(Sysctl(key="vm.swappiness", value=10), {"sysctl:vm.swappiness": row})


def test_what_changes_results_is_never_safe() -> None:
    with pytest.raises(RuleError, match="never `safe`"):
        check_fix(Sysctl(key="vm.swappiness", value=10, safety="safe", numerics=True))
