r"""TB-USD. "the savings amount to $1.2 M/year (Azure, 60 GPUs) and $2.0 M/year (LMSYS, 102 GPUs)".

**Verdict: refuted.** 60 and 102 are *instances*; each is two GPUs (TP = 2, Section 4.1). At the paper's 2.21 dollars a
GPU hour, 8,760 hours a year, 60 instances are 120 GPUs and 2.32 M dollars, 102 are 204 GPUs and 3.95 M (1): the
printed sums are half of it (2).

**What the authors could answer.** That 2.21 dollars is the price of an instance, whatever it is called. Then the rate
is wrong: a p4d.24xlarge has eight GPUs, so 2.21 is a price per GPU, as printed. That GPU and instance were used alike
throughout: the abstract sells GPUs saved, and with TP = 2 each instance has two, so the mistake understates the paper's
own result. The verdict stands, in the authors' favour.
"""

from fractions import Fraction as F

from dmodels.models.cost import fleet_cost
from proofs.claim import TOKEN_BUDGET, Claim, Verdict

CLAIM = Claim(
    id="TB-USD",
    source=TOKEN_BUDGET,
    where="Section 4.2, abstract",
    says="savings amount to $1.2 M a year (Azure, 60 GPUs) and $2.0 M (LMSYS, 102 GPUs)",
    verdict=Verdict.REFUTED,
    error="a factor 2: instances of two GPUs are counted as GPUs",
    counterexample="One instance of Llama-3-70B at TP = 2 costs 38,719 dollars a year at 2.21 an hour, not 19,360.",
    means="Ask of every fleet size whether it counts instances or GPUs before multiplying by a price.",
    minimal="least: a single instance shows it",
)
PRICE, HOURS = F(221, 100), 8760


def test_both_sums_in_rationals():  # 1
    for instances, printed, exact in ((60, F(12, 10), F(2323152, 10**6)), (102, F(2), F(39493584, 10**7))):
        usd = instances * 2 * PRICE * HOURS / 10**6
        assert usd == exact
        assert round(float(usd / 2), 1) == float(printed)  # one GPU each: the paper's figure


def test_the_shipped_cost_agrees():  # 1
    for instances, exact in ((60, F(2323152, 10**6)), (102, F(39493584, 10**7))):
        cost = fleet_cost(float(instances), 2.0, 2.21)
        assert abs(float(cost.usd_per_year) / 1e6 - float(exact)) < 1e-9 and float(cost.fleet_gpus) == 2 * instances


def test_one_instance():  # 2
    assert 2 * PRICE * HOURS == F(387192, 10) and abs(float(fleet_cost(1.0, 2.0, 2.21).usd_per_year) - 38719.2) < 1e-6
