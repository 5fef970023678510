"""
A plan as JSON, and as a Markdown report: ranking, what does not fit, why, memory, costs, and every formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from verifier.costs import CostModel
from verifier.model import counted
from verifier.planning.advice import figure, fillings, published, reasons, second_copy
from verifier.planning.memory import TERMS
from verifier.planning.model import flops_per_token, parameters
from verifier.planning.plan import Choice, Plan
from verifier.planning.rules import RULES

COLUMNS = ("schedule", "P", "M", "step s", "bubble", "hours/T", "of peak", "memory GB", "activations", "copies")
"""Of the ranking; ``hours/T``: accelerator hours per trillion tokens; ``of peak``: the model's FLOPs as a share of all."""

FORMULAS = (
    "**step** = makespan of the pipeline + time for gradients and weights. The makespan is that of the real order, every "
    "block as early as its inputs allow, under the durations per stage above; it is exact for these durations, which are "
    "estimates.",
    "**bubble** = idle time of all ranks / (P x makespan). What a block waits for inside itself, above all exposed all-to-all, "
    "is not in it, but in the durations.",
    "**accelerator hours per trillion tokens** = step x ranks x 10^12 / (tokens of a step) / 3600.",
    "**of peak** = 3 x FLOPs forwards of matrix products and causal attention x tokens / (step x ranks x flops).",
    "**durations**, estimated for t tokens of a micro-batch, T-way tensor parallelism, R = flops x reached x T: "
    "F = t (2 active parameters + attention) / R, I = t (2 active + 2.5 attention + recomputed) / R, W = t 2 active / R, where "
    "active parameters are those of matrices, without norms, "
    "and attention = sequence x heads x (key + value size) FLOPs; to F and I of a layer two all-reduces of 2 (T-1)/T x t x "
    "hidden x 2 bytes over the inside bandwidth; to F and I of a layer with experts its dispatch and combine; with "
    "full recompute both once more to I, which runs all of F again. B = I + W. A pair "
    "takes the longer of its compute and its all-to-all where these overlap, else F + B.",
    "**all-to-all** = t / T x hidden x copies x (dispatch + combine bytes) / bandwidth. Between nodes, copies = min(active, "
    "nodes, node limit) x (nodes-1)/nodes; inside one node, active x (E-1)/E. Half or less of what was measured on 64 ranks, "
    "where waiting for peers comes on top.",
    "**measured durations** are scaled in proportion to layers and tokens. A pair of stages of unequal length takes the same "
    "share of its F + B as the measured one.",
    "**hop** = t x hidden x 2 / T bytes over the bandwidth between nodes (inside, if there is one node), once per stage.",
    "**weights, gradients** = (s + e/E) / T x bytes, with s a rank's parameters outside routed experts and e those of routed "
    "experts, of all its stages and copies; ZeRO-3 and ZeRO-2 divide them as ZeRO-1 does the optimizer; what they then "
    "send for every micro-batch is not counted.",
    "**optimizer** = (s + e) / (T D c) x bytes under ZeRO-1, with D-way data parallelism and c copies of each stage, whose "
    "ranks are taken to share one optimizer.",
    "**activations** = the peak of the real order, from the start of F to the end of W, each stage with what its layers keep. "
    "Per token and layer: the two inputs of the residual stream (2 bytes), what attention reads and gives (2 bytes), row sums, "
    "gate and up halves, and per visited expert its input (activation bytes), and of a layer with experts a score per "
    "routed expert (4 bytes); with recompute = none also normalised inputs, the product of the halves and "
    "up-projected heads; with full only the layer's input. Logits: 4 bytes. Gradients that a W waits with are not counted.",
    "**gradients and weights** are sent once a step: (n-1)/n of the local bytes, n ranks that hold the same stage, without "
    "overlap.",
    "**stages** are contiguous, embedding and output counted: the longest as short as can be, then single layers moved away "
    "from the fullest rank where that helps.",
)
"""Each formula of a plan, for people."""


def plan_json(plan: Plan) -> dict[str, object]:
    """
    The object that ``plan --json`` prints: seconds, bytes, microseconds in costs.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> written = plan_json(make_plan(read_plan_spec("specs/cluster-small-moe.toml")))
    >>> written["recommended"], sorted(written)[:3]
    ('dualpipev P=4', ['active_parameters', 'choices', 'does_not_fit'])
    """
    spec, best = plan.spec, plan.fitting[0] if plan.fitting else None
    total, active = parameters(spec)
    return {
        "spec": spec.path,
        "parameters": total,
        "active_parameters": active,
        "flops_per_token": round(flops_per_token(spec)),
        "tokens_per_step": plan.tokens,
        "durations": "measured" if spec.chunk else "estimated",
        "recommended": best.name if best else None,
        "notes": list(spec.notes),
        "reasons": list(reasons(plan)),
        "microbatch_rule": f"{RULES[best.family].sizes}; {RULES[best.family].remark}" if best else None,
        "fillings": [
            {"microbatches": filling.microbatches, "batch": filling.batch, "bubble": round(filling.run.bubble, 6)}
            for filling in (fillings(plan, best) if best else ())
        ],
        "choices": [_choice_json(plan, choice) for choice in plan.fitting],
        "does_not_fit": [_choice_json(plan, choice) for choice in plan.out],
        "second_copy": [second_copy(spec, depth).as_json() for depth in spec.depths if depth > 1],
        "published": {"gpu_hours_per_trillion_tokens": spec.published, "comparison": published(plan)}
        if spec.published
        else None,
        "formulas": [formula.replace("**", "") for formula in FORMULAS],
    }


def _choice_json(plan: Plan, choice: Choice) -> dict[str, object]:
    written: dict[str, object] = {
        "schedule": choice.family,
        "ranks": choice.depth,
        "data_parallel": choice.dp,
        "microbatches": choice.microbatches,
        "weight_copies": choice.copies,
        "least_batch": choice.least_batch,
    }
    if choice.costs is not None:
        written["layers"] = [list(pair) for pair in choice.layers]
        written["costs"] = choice.costs.as_written()
    if choice.memory is not None:
        written["memory"] = choice.memory.as_json()
    if choice.broken:
        return {**written, "broken": [{"term": obstacle.term, "text": obstacle.text} for obstacle in choice.broken]}
    assert choice.run is not None, "it fits"
    return {
        **written,
        "step_seconds": round(choice.step, 6),
        "pipeline_seconds": round(choice.run.seconds, 6),
        "sync_seconds": round(choice.sync, 6),
        "bubble_ratio": round(choice.run.bubble, 6),
        "method": choice.run.method,
        "gpu_hours_per_trillion_tokens": round(plan.gpu_hours(choice)),
        "flops_utilisation": round(plan.utilisation(choice), 4),
    }


def ranking_row(plan: Plan, choice: Choice) -> tuple[str, ...]:
    """
    A choice as a row under ``COLUMNS``.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> plan = make_plan(read_plan_spec("specs/cluster-small-moe.toml"))
    >>> ranking_row(plan, plan.fitting[0])[:4]
    ('dualpipev', '4', '32', '3.37')
    """
    assert choice.run is not None, "it fits"
    assert choice.memory is not None, "it fits"
    return (
        choice.family,
        str(choice.depth),
        str(choice.microbatches),
        figure(choice.step, 2),
        f"{choice.run.bubble:.1%}",
        f"{plan.gpu_hours(choice) / 1e3:.1f} K" if plan.gpu_hours(choice) >= 1e3 else figure(plan.gpu_hours(choice), 0),
        f"{plan.utilisation(choice):.0%}",
        f"{choice.memory.total / 1e9:.1f}",
        f"{choice.memory.activations / 1e9:.1f}",
        str(choice.copies),
    )


def described(plan: Plan) -> tuple[str, ...]:
    """
    What the plan is about, in lines for people.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> described(make_plan(read_plan_spec("specs/cluster-small-moe.toml")))[0]
    'small MoE, 13.7 B parameters (2.0 B active), on 16 accelerators on 2 nodes'
    """
    spec = plan.spec
    total, active = parameters(spec)
    name = spec.model.name or "model"
    size = f"{total / 1e9:.1f} B parameters" + (f" ({active / 1e9:.1f} B active)" if spec.model.experts else "")
    parallel = ", ".join(f"{count}-way {what}" for count, what in ((spec.ep, "EP"), (spec.tp, "TP")) if count > 1)
    durations = "durations measured" if spec.chunk else "durations estimated from FLOP/s"
    return (
        f"{name}, {size}, on {spec.cluster.name or f'{spec.cluster.ranks} accelerators'}",
        f"batch {spec.batch} x {spec.model.sequence} tokens, micro-batch {spec.microbatch}; "
        f"{parallel + ', ' if parallel else ''}ZeRO-{spec.zero}, recompute {spec.recompute}; {durations}",
    )


# ---------------------------------------- Markdown


def markdown(plan: Plan, improved: str = "") -> str:
    """
    The report.

    Parameters
    ----------
    improved
        What synthesis found, if it was asked for.

    Examples
    --------
    >>> from verifier.planning.plan import make_plan
    >>> from verifier.planning.spec import read_plan_spec
    >>> text = markdown(make_plan(read_plan_spec("specs/cluster-small-moe.toml")))
    >>> text.splitlines()[0]
    '# Pipeline plan: small MoE'
    """
    return "\n".join(_lines(plan, improved)) + "\n"


def _lines(plan: Plan, improved: str) -> Iterator[str]:
    spec = plan.spec
    yield from (f"# Pipeline plan: {spec.model.name or spec.path}", "")
    yield from (f"{line}  " for line in described(plan))
    yield from ("All durations and sizes are estimates by the formulas at the end; bubbles are those of the real orders.", "")
    yield from (f"- {note}" for note in spec.notes)
    if spec.notes:
        yield ""
    if spec.chunk:
        yield from (f"Measured durations: {spec.chunk.source or 'as the spec says'}.", "")
    yield from _recommended(plan, improved)
    if plan.fitting:
        yield from ("## Ranking", "", *_table(COLUMNS, (ranking_row(plan, choice) for choice in plan.fitting)), "")
        methods = sorted({choice.run.method for choice in plan.fitting if choice.run})
        yield from (f"Pipelines are {'; or '.join(methods)}.", "")
    if plan.out:
        rows = ((choice.family, str(choice.depth), "; ".join(map(str, choice.broken))) for choice in plan.out)
        yield from ("## What does not fit", "", *_table(("schedule", "P", "because of"), rows), "")
    yield from _memories(plan)
    yield from _costs(plan)
    yield from _copies(plan)
    yield from ("## Formulas", "", "Numbers are estimates by these formulas, from the sizes in the spec:", "")
    yield from (f"- {formula}" for formula in FORMULAS)


def _recommended(plan: Plan, improved: str) -> Iterator[str]:
    yield from ("## Recommendation", "")
    if not plan.fitting:
        yield from ("Nothing fits; the table below says what is in the way of each schedule.", "")
        return
    spec, best = plan.spec, plan.fitting[0]
    assert best.run is not None, "it fits"
    assert best.memory is not None, "it fits"
    microbatches = counted(best.microbatches, "micro-batch", "micro-batches")
    yield (
        f"**{best.name}** with {microbatches} in each of {counted(best.dp, 'pipeline')}: a step takes about "
        f"{figure(best.step, 2)} s, {best.run.bubble:.1%} of the pipeline's time is bubble, and the fullest rank holds "
        f"{best.memory.total / 1e9:.1f} of {spec.cluster.memory / 1e9:g} GB."
    )
    yield ""
    yield from (f"- {reason}" for reason in reasons(plan))
    yield ""
    rule = RULES[best.family]
    yield f"Micro-batches: {best.family} takes {rule.sizes}; {rule.remark} (without hops; the numbers here count them)."
    rows = (
        (str(filling.microbatches), str(filling.batch), figure(filling.run.seconds, 2), f"{filling.run.bubble:.1%}")
        for filling in fillings(plan, best)
    )
    yield from ("", *_table(("M", "batch", "pipeline s", "bubble"), rows), "")
    if spec.training_tokens:
        hours = plan.gpu_hours(best, spec.training_tokens)
        yield from (f"{spec.training_tokens / 1e12:g} trillion tokens: about {hours / 1e6:.2f} M accelerator hours.", "")
    if spec.published:
        yield from (published(plan), "")
    if improved:
        yield from (f"Synthesis: {improved}", "")


def _memories(plan: Plan) -> Iterator[str]:
    """The terms of everything that got as far as its memory."""
    rows = (
        (
            choice.family,
            str(choice.depth),
            str(choice.memory.rank),
            *(f"{getattr(choice.memory, term) / 1e9:.1f}" for term in (*TERMS, "total")),
        )
        for choice in (*plan.fitting, *plan.out)
        if choice.memory
    )
    yield from ("## Memory of the fullest rank, GB", "", *_table(("schedule", "P", "rank", *TERMS, "total"), rows), "")


def _costs(plan: Plan) -> Iterator[str]:
    """Every stage of the recommended choice, and the longest stage of the others."""
    columns = ("schedule", "P", "stage", "layers", "F ms", "I ms", "W ms", "B ms", "F&B ms", "keeps GB")
    if plan.fitting:
        best = plan.fitting[0]
        rows = (_cost_row(best, stage) for stage in range(len(best.layers)))
        yield from ("## Costs per stage", "", *_table(columns, rows), "")
        yield from ("A pair is that of two micro-batches on this stage. Layer 0 is the embedding.", "")
    others = [choice for choice in (*plan.fitting[1:], *plan.out) if choice.costs is not None]
    if others:
        yield from ("The longest stage of the others:", "", *_table(columns, (_longest(choice) for choice in others)), "")


def _longest(choice: Choice) -> tuple[str, ...]:
    assert choice.costs is not None, "asked where there are some"
    times = [_of_stage(choice.costs, "F", stage) + _of_stage(choice.costs, "B", stage) for stage in range(len(choice.layers))]
    return _cost_row(choice, times.index(max(times)))


def _cost_row(choice: Choice, stage: int) -> tuple[str, ...]:
    costs, (begin, end) = choice.costs, choice.layers[stage]
    assert costs is not None, "asked where there are some"
    assert isinstance(costs.activation, tuple), "per stage"
    times = (figure(_of_stage(costs, kind, stage), 1) for kind in ("F", "I", "W", "B", "F&B"))
    return (
        choice.family,
        str(choice.depth),
        str(stage),
        f"{begin} to {end - 1}",
        *times,
        f"{float(costs.activation[stage]) / 1e6:.2f}",
    )


def _of_stage(costs: CostModel, kind: str, stage: int) -> float:
    """Milliseconds; a pair is of the stage with itself."""
    price = costs.prices[kind]
    assert isinstance(price, tuple), "plans price each stage"
    cell = price[stage]
    return float(cell[stage] if isinstance(cell, tuple) else cell) / 1e3


def _copies(plan: Plan) -> Iterator[str]:
    if plan.spec.depths == (1,):
        return
    yield from ("## A second copy of the weights", "")
    yield "What a schedule of two directions adds to the average rank, beside one of a single direction at the same depth:"
    extras = [second_copy(plan.spec, depth) for depth in plan.spec.depths if depth > 1]
    rows = (
        (
            str(extra.depth),
            f"{extra.weights / 1e9:.1f}",
            f"{extra.weights / plan.spec.cluster.memory:.1%}",
            f"{extra.gradients / 1e9:.1f}",
            f"{extra.unsharded / 1e9:.1f}",
            f"{extra.ratio:.1f}",
        )
        for extra in extras
    )
    columns = ("P", "weights GB", "of memory", "gradients GB", "weights unsharded GB", "unsharded / this")
    yield from ("", *_table(columns, rows), "")
    if plan.spec.ep > 1:
        yield from (
            f"*Unsharded* is what a dense model of as many parameters takes. {plan.spec.ep}-way expert parallelism leaves each "
            "rank one part of its stage's experts, which is why the second copy is small here.",
            "",
        )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
