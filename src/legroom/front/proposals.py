"""What a search may try on this step and this card, beside recomputed layers and micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from legroom.engines.xla.client import LIMIT_PERCENT
from legroom.front.estimating import Estimator
from legroom.front.target import Card
from legroom.gpus import jax_pool_bytes
from legroom.plans.search import Proposal
from legroom.plans.tried import Tried
from legroom.records import Estimate
from legroom.records.plan import Action

OFFERED = ("host_data", "dropout", "compile", "optimizer")
SHARES = (1.0, 0.75)  # of the temporaries that would fit: XLA's own sum is not the heap that it ends up with
XLA_SHARE, XLA_PERCENT = 80, 95  # what XLA takes for granted of a card, and how much of that it uses
CUDA_POOL = "TF_GPU_ALLOCATOR=cuda_malloc_async"
POOL_PERCENT = 92  # of a card, for JAX: the rest is for the context and for libraries
BRAIN_FLOATS = (8, 0)  # the compute capability from which tensor cores know bfloat16
HALF_FLOATS = (7, 0)  # and float16


@dataclass(frozen=True, slots=True)
class Proposals:
    """`easy` is exact and costs little, the easiest first; `inexact` was allowed; `refused` was allowed and cannot be."""

    easy: tuple[Proposal, ...] = ()
    inexact: tuple[Action, ...] = ()
    refused: tuple[str, ...] = ()


def proposals_for(estimator: Estimator, allow: Sequence[str], *, anew: bool = True) -> Proposals:
    """For the step as it was captured; with other engines than the one that was asked for, nothing is tried. `anew`: the process that trains is yet to be started, with whatever
    settings it needs."""
    estimator.observe()  # before the model is built to be looked at
    offered = by_name(estimator.source.possible())
    may_switch = estimator.engine == "auto" and not estimator.card.is_cpu
    free: list[Proposal] = [] if estimator.card.is_cpu else [keep_arrays(action) for action in offered["host_data"]]
    switches = [switch(action) for action in offered["compile"]] if may_switch else []
    shares = SHARES if anew and not estimator.card.is_cpu else ()
    held, held_then = ([hold_xla(estimator.card, share, switched=now) for share in shares] for now in (False, True))
    inexact = [*offered["optimizer"]] if "optimizer" in allow else []
    refused = []
    if "mixed-precision" in allow:
        precision = precision_for(estimator.answers.card)
        if isinstance(precision, Action):
            inexact.insert(0, precision)
        else:
            refused.append(f"mixed_precision: {precision}")
    whole_card = anew and not estimator.card.is_cpu and estimator.card.budget_bytes is None
    if whole_card and estimator.source.step.framework == "jax":
        free.insert(0, always(larger_pool(estimator.card)))
    masks = [always(action) for action in offered["dropout"]]
    untorn = [from_cuda] if whole_card else []
    return Proposals((*free, *masks, *untorn, *held, *switches, *held_then), tuple(inexact), tuple(refused))


def by_name(actions: Sequence[Action]) -> dict[str, list[Action]]:
    return {name: [action for action in actions if action.name == name] for name in OFFERED}


def always(action: Action) -> Proposal:
    def propose(base: Tried) -> Action:
        return action

    return propose


def switch(action: Action) -> Proposal:
    """Compiled or not: XLA's own recomputation comes first, and is given up for nothing else."""

    def propose(base: Tried) -> Action | None:
        return None if any(done.name == "xla_memory" for done in base.actions) else action

    return propose


def note_on(plain: Estimate | None) -> tuple[str, ...]:
    """What XLA has done by itself for a step that it compiles, where it was not enough."""
    if plain is None or plain.engine != "xla" or plain.fits:
        return ()
    return ("XLA recomputes by itself what does not fit the card it compiles for: these figures have that in them",)


def larger_pool(card: Card) -> Action:
    """JAX takes three quarters of a card for itself; nearly all of it is as good where nobody else is on the card."""
    usable = jax_pool_bytes(card.gpu, POOL_PERCENT)
    setting = f"XLA_PYTHON_CLIENT_MEM_FRACTION={POOL_PERCENT / 100:.2f}"
    return Action("pool", (("setting", setting), ("usable_bytes", usable)))


def from_cuda(base: Tried) -> Action | None:
    """CUDA's own pool, for steps of TensorFlow's that run op by op. No limit can be set to it: with a budget it is not offered."""
    return Action("allocator", (("setting", CUDA_POOL),)) if base.estimate.engine == "op" else None


def keep_arrays(action: Action) -> Proposal:
    """Only where some of the data lies on the card."""

    def propose(base: Tried) -> Action | None:
        return action if base.estimate.breakdown.get("data", 0) else None

    return propose


def hold_xla(card: Card, share: float, *, switched: bool) -> Proposal:
    """XLA told of so little memory that it recomputes as much as is missing. Where the card's size alone makes it do so, it was compiled so.

    `switched`: for a step that was not compiled by itself.
    """

    def propose(base: Tried) -> Action | None:
        found = base.estimate
        if found.engine != "xla" or switched != any(action.name == "compile" for action in base.actions):
            return None
        fixed = sum(found.breakdown.get(name, 0) for name in ("weights", "optimizer", "inputs"))
        room = card.gpu.memory_bytes * XLA_SHARE // 100 - fixed
        wanted = int((found.program_bytes - fixed - (found.need_bytes - found.usable_bytes)) * share)  # what would fit
        percent = wanted * 100 // room if room > 0 else 0
        if not 0 < percent < XLA_PERCENT:
            return None
        limit = room * percent // 100
        settings = (("limit_bytes", limit), ("percent", percent), ("flag", f"--{LIMIT_PERCENT}={percent}"))
        return Action("xla_memory", settings)

    return propose


def precision_for(card: Card) -> Action | str:
    """The mixed precision that the card's tensor cores know, or why there is none."""
    if card.is_cpu:
        return "a CPU computes in 16 bits no faster, and mostly slower; it is for GPUs"
    if card.gpu.compute_capability >= BRAIN_FLOATS:
        return Action("mixed_precision", (("policy", "mixed_bfloat16"),))
    if card.gpu.compute_capability >= HALF_FLOATS:
        return Action("mixed_precision", (("policy", "mixed_float16"),))
    major, minor = card.gpu.compute_capability
    return f"{card.gpu.name} (compute capability {major}.{minor}) has no tensor cores; float16 needs 7.0, bfloat16 8.0"
