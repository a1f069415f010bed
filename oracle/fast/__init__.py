"""The contracts in torch: batched, on CPU and CUDA, differentiable where it matters; module and names as in `oracle`.

Importing this package imports nothing; its modules import torch.
"""
