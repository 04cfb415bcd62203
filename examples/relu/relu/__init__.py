from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("librelu_rust.so"))
relu = torch.ops.relu_rust.relu
