"""
Interpret a program (pipeline-program/1), as a trainer on Megatron, DeepSpeed or a loop of your own would.

    verifier export dualpipe -P 4 -M 8 --to program -o dualpipe.json
    python examples/interpret_program.py dualpipe.json

Ranks are threads, links are queues, and a stage multiplies by a number, so that every gradient can be checked. A trainer puts
its own calls where a comment names them; nothing here comes from the verifier.
"""

import json
import re
import sys
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from queue import Queue

ACTION = re.compile(r"(\d+)([A-Z_]+?)(\d*)('?)(?![A-Z_\d])")
WEIGHT = range(2, 1000)  # of every stage; both copies of a stage start equal


class Rank:
    """One rank. Results and inputs have the key (F or B, direction, stage that reads it, micro-batch)."""

    def __init__(self, number, program, links):
        self.number, self.placement, self.links = number, program["placement"], links
        self.held, self.posted, self.gradients = {}, defaultdict(deque), defaultdict(int)
        for item in program["actions"][number]:
            # The messages of a group belong into one batch_isend_irecv; an overlapped pair has two parts.
            for part in ACTION.findall(" ".join(item) if isinstance(item, list) else item):
                self.act(part[1], len(part[3]), int(part[0]), int(part[2] or 0))

    def act(self, action, direction, stage, microbatch):
        """Post a message or compute; UNSHARD, RESHARD and REDUCE_GRAD are for trainers that shard weights."""
        kind, home = action[-1], self.placement[direction]
        following = stage + (1 if kind == "F" else -1)
        if action.startswith("SEND"):
            self.links[self.number, home[following]].put(self.held[kind, direction, following, microbatch])  # isend
        elif action.startswith("RECV"):
            self.posted[home[2 * stage - following]].append((kind, direction, stage, microbatch))  # irecv
        elif action == "F":
            inputs = self.take("F", direction, stage, microbatch) if stage else 1 + microbatch + 100 * direction
            self.held["F", direction, stage, microbatch] = inputs
            self.held["F", direction, stage + 1, microbatch] = inputs * WEIGHT[stage]  # forward
        elif action in ("B", "I", "W"):
            weight = 1 + microbatch + 100 * direction  # in the loss: each has another, so that exchanged ones show
            gradient = self.take("B", direction, stage, microbatch) if stage < len(home) - 1 else weight
            if action in "BI":
                self.held["B", direction, stage - 1, microbatch] = gradient * WEIGHT[stage]  # backward for the inputs
            if action in "BW":
                self.gradients[direction, stage] += gradient * self.held["F", direction, stage, microbatch]  # for the weights

    def take(self, kind, direction, stage, microbatch):
        """An input: wait for receives in the order in which they were posted, until it is there."""
        peer = self.placement[direction][stage - (1 if kind == "F" else -1)]
        while (kind, direction, stage, microbatch) not in self.held:
            self.held[self.posted[peer].popleft()] = self.links[peer, self.number].get(timeout=5)  # wait of an irecv
        return self.held[kind, direction, stage, microbatch]


def main(path):
    """Run all ranks, add the gradients of the copies of each stage, and compare with a single process."""
    program = json.loads(Path(path).read_text())
    ranks, stages = range(program["ranks"]), range(len(program["placement"][0]))
    links = {(sender, receiver): Queue() for sender in ranks for receiver in ranks}
    with ThreadPoolExecutor(len(ranks)) as pool:
        done = list(pool.map(lambda number: Rank(number, program, links).gradients, ranks))
    inputs = sum((1 + m + 100 * d) ** 2 for d, count in enumerate(program["microbatches"]) for m in range(count))
    for stage in stages:
        found = sum(gradient for rank in done for (_, held), gradient in rank.items() if held == stage)
        expected = inputs * prod(WEIGHT[other] for other in stages if other != stage)
        assert found == expected, f"stage {stage}: the gradient is {found}, in a single process it is {expected}"
    print(f"{program.get('name', path)}: {len(ranks)} ranks, {len(stages)} stages, every gradient as in a single process")


if __name__ == "__main__":
    main(sys.argv[1])
