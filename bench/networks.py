"""The networks of the comparisons, as PyTorch and as ONNX."""

import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F


class CifarBlock(nn.Module):
    """Basic block with option A shortcut (He et al. 2016, section 4.2): no parameters in it."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.extra = stride, channels - channels_in

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.extra:
            half = self.extra // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.extra - half))
        return F.relu(x + y)


def cifar_resnet(depth):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels_in = 16
    for channels in (16, 32, 64):
        for block in range((depth - 2) // 6):
            stride = 2 if block == 0 and channels > 16 else 1
            layers.append(CifarBlock(channels_in, channels, stride))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_model(name):
    """The network, its image size and its number of classes."""
    if name in ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110"):
        return cifar_resnet(int(name[len("resnet"):])), 32, 10
    import torchvision  # only here: the CIFAR networks do without it

    return getattr(torchvision.models, name)(weights=None), 224, 1000


def seeded_model(name):
    """make_model with the weights that every engine gets."""
    torch.manual_seed(0)
    return make_model(name)


def export_onnx(name, path):
    """Writes the network, for any batch size, to `path`."""
    model, size, _ = seeded_model(name)
    images = torch.randn(2, 3, size, size)  # 1 would be taken for a constant
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (images,), str(path), input_names=["images"],
                          output_names=["logits"], dynamo=True, verbose=False, external_data=False,
                          dynamic_shapes=({0: torch.export.Dim("batch")},))
