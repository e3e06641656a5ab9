"""A copy of a model that computes in 16-bit floats: half the time if the processor supports them.

Its logits have small errors. It is used on request only: for screening
(`nppr.models.screening`) and for rough gradients (`with_rough_gradients`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from nppr.errors import ClassifierError
from nppr.models.classifier import Classifier, find_logits
from nppr.system.specs import BFLOAT16

CONTINUOUS = {
    *(f"prim::{name}" for name in (
        "Constant", "GetAttr", "ListConstruct", "ListUnpack", "NumToTensor", "TupleConstruct",
        "TupleUnpack",
    )),
    *(f"aten::{name}" for name in (
        "Int", "ScalarImplicit", "size",
        "_convolution", "addmm", "baddbmm", "batch_norm", "bmm", "conv1d", "conv2d", "einsum",
        "group_norm", "instance_norm", "layer_norm", "linear", "matmul", "mm",
        "scaled_dot_product_attention",
        "elu", "elu_", "gelu", "hardsigmoid", "hardsigmoid_", "hardswish", "hardswish_", "hardtanh",
        "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "mish", "mish_", "prelu", "relu",
        "relu6", "relu6_", "relu_", "sigmoid", "sigmoid_", "silu", "silu_", "softmax", "softplus",
        "tanh", "tanh_",
        "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d",
        "avg_pool2d", "max_pool1d", "max_pool2d", "upsample_bicubic2d", "upsample_bilinear2d",
        "upsample_nearest2d",
        "abs", "add", "add_", "amax", "amin", "clamp", "clamp_", "clamp_max", "clamp_min", "div",
        "div_", "exp", "log", "maximum", "mean", "minimum", "mul", "mul_", "neg", "norm", "pow",
        "rsqrt", "rsub", "sqrt", "sub", "sub_", "sum", "var",
        "cat", "chunk", "clone", "constant_pad_nd", "contiguous", "detach", "dropout", "dropout_",
        "expand", "expand_as", "feature_dropout", "flatten", "flip", "movedim", "narrow", "pad",
        "permute", "repeat", "reshape", "reshape_as", "roll", "select", "slice", "split",
        "split_with_sizes", "squeeze", "stack", "t", "to", "transpose", "unflatten", "unsqueeze",
        "view", "view_as",
    )),
}  # fmt: skip
"""Continuous operations: a small change of the input is a small change of the output."""

WHOLE = ("Bool", "Byte", "Char", "Int", "Long", "Short")
"""Names of integer types in traces."""


def trace_in_bfloat16(classifier: Classifier, x: Tensor) -> Callable[[Tensor], Tensor]:
    """Trace the model in 16-bit floats on the inputs `x`: normalised inputs to logits.

    A model with an operation that is not known to be continuous is refused: choosing an expert, for
    example, turns a small error into a large one. On a CPU, layers are fused, which saves a fifth
    of the time for batches of the size of `x`; other sizes run layer by layer.
    """
    if not computes_in_bfloat16(x.device):
        raise ClassifierError(
            f"`engine` {BFLOAT16} needs a processor that computes in 16-bit floats (AVX512-BF16 or"
            " AMX), and a PyTorch that reports it. Leave out --engine."
        )
    example = classifier.normalised(x)
    with _one_path(), torch.inference_mode():
        traced = torch.jit.trace(Bfloat16Model(classifier), example, check_trace=False).eval()
    steps = {_name_of(node) for node in traced.inlined_graph.nodes()} - CONTINUOUS
    if steps:
        raise ClassifierError(
            f"`engine` {BFLOAT16} must be given a model of operations that are known to be continuous,"
            f" got one with {', '.join(sorted(steps))[:200]}. Leave out --engine."
        )
    return _fused(traced, example) if x.device.type == "cpu" else traced


def _name_of(node: torch.Node) -> str:
    """Return the name of a traced operation; a conversion to integers has its own name."""
    name = node.kind()
    if name == "aten::to" and str(node.output().type().scalarType()) in WHOLE:
        return "aten::to (whole numbers)"
    return name


@contextmanager
def _one_path() -> Iterator[None]:
    """Make tracing fail if the path outside PyTorch's layers could depend on the inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", TracerWarning)
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch\.nn\.")
        yield


class Bfloat16Model(nn.Module):
    """A copy of a classifier's model that computes in 16-bit floats."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        if classifier.module is None:
            raise ClassifierError(
                f"`engine` {BFLOAT16} needs a PyTorch module, got a plain function."
                " Leave out --engine."
            )
        own = copy.deepcopy(classifier.module).eval().requires_grad_(False)
        self.model = own.to(torch.bfloat16)
        self.channels_last = classifier.channels_last
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Map normalised inputs to logits, both in 32-bit floats."""
        x = x.to(torch.bfloat16)
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return find_logits(self.model(x)).float()


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether 16-bit floats can be faster; without such instructions they are many times slower.

    If PyTorch does not report the processor's instructions, the answer is False.
    """
    if device.type != "cpu":
        return True
    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def _fused(traced: nn.Module, example: Tensor) -> nn.Module:
    """Fuse layers of the traced model with oneDNN, by running it a few times."""
    before = torch.jit.onednn_fusion_enabled()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.jit.enable_onednn_fusion(True)
        try:
            frozen: nn.Module = torch.jit.freeze(traced)
            for _ in range(3):
                frozen(example)
        finally:
            torch.jit.enable_onednn_fusion(before)
    return frozen
