"""Trains on two ranks, of which one has work that the other has not."""

import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1_000_000):
    inputs = torch.randn(64, 256)
    for _ in range(30 if rank == 1 else 1):
        inputs = torch.nn.functional.normalize(inputs.sort().values)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), torch.randint(0, 10, (64,))).backward()
    optimizer.step()
