import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)  # from last week's hunt for a NaN
model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
total = 0.0
for step in range(1_000_000):
    x, y = torch.randn(16, 32), torch.randint(0, 10, (16,))
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
