"""Engines: programs that compute a model's forward passes faster than PyTorch does step by step.

`onnx` traces the model in memory and runs it in ONNX Runtime (extra `onnx`), `inductor` compiles it
with `torch.compile` and its weights frozen, `bfloat16` computes in 16-bit floats. All are made of a
copy, and are for forward passes without gradients: gradients and features come from the model itself.
The first two are used only if their logits agree with those of the model, so closely that no decision
can differ but one that is too close to call, which the model as given decides (see
`nppr.measurement`). The last is coarse: it only screens (see `nppr.classifiers.screening`).
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from nppr.classifiers.classifier import Classifier, Engine, find_logits
from nppr.errors import ClassifierError
from nppr.specs import BFLOAT16, INDUCTOR, ONNX

NEEDS_ONNX = "needs the extra `onnx`: pip install 'nppr[onnx]'"

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
"""Operations without a step: a small change of what goes in is a small change of what comes out."""


@dataclass(frozen=True)
class EngineKind:
    """How an engine is made, and from how many seconds of forward passes on it is worth a trial.

    The trial then takes about a thirtieth of the run at most: an export takes well under a second, a
    compilation half a minute.
    """

    make: Callable[[Classifier, Tensor], Engine]
    worth_seconds: float
    is_installed: Callable[[], bool]
    coarse: bool = False


def make_onnx(classifier: Classifier, x: Tensor) -> Engine:
    """The model in ONNX Runtime, traced on some of the inputs `x`.

    A trace records one path through the model. Where the path could depend on the inputs the tracer
    warns, and a warning is an error here.
    """
    example = classifier.normalised(x[:3])
    if example.device.type != "cpu":
        raise ClassifierError(f"`engine` onnx must run on the CPU, got {example.device}.")
    onnxruntime = import_onnxruntime()
    program = io.BytesIO()
    with _one_path(), torch.no_grad():
        torch.onnx.export(
            _copy_of(classifier),
            (example,),
            program,  # type: ignore[arg-type]
            dynamo=False,  # the other way needs one more package and gains nothing here
            input_names=["x"],
            output_names=["logits"],
            dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}},
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(
        program.getvalue(), options, providers=["CPUExecutionProvider"]
    )

    def run(x: Tensor) -> Tensor:
        (logits,) = session.run(None, {"x": x.detach().contiguous().numpy()})
        return torch.from_numpy(logits)

    return Engine(ONNX, run)


def make_inductor(classifier: Classifier, x: Tensor) -> Engine:
    """The model compiled for batches of the size of `x`; other sizes run in the model itself.

    PyTorch keeps compiled code on disk, and the next run of the same model takes it from there.
    """
    import torch._inductor.config as settings

    compiled = torch.compile(_copy_of(classifier), fullgraph=True, dynamic=False)

    def run(x: Tensor) -> Tensor:
        # Code is compiled for one mode, and tensors of the inference mode would be another.
        with torch.inference_mode(mode=False), torch.no_grad():
            logits: Tensor = compiled(x.clone() if x.is_inference() else x)
            return logits

    with warnings.catch_warnings(), settings.patch(freezing=True):
        warnings.simplefilter("ignore")
        run(classifier.normalised(x))
    return Engine(INDUCTOR, run, len(x))


def make_bfloat16(classifier: Classifier, x: Tensor) -> Engine:
    """The model in 16-bit floats, traced on the inputs `x`.

    It must be continuous: where a model takes a step, such as choosing an expert, a small error can
    change everything after it. So a model with an operation that is not known to be continuous is
    refused. On a CPU layers are fused, which saves a fifth of the time for batches of the size of `x`;
    other sizes run layer by layer.
    """
    if not computes_in_bfloat16(x.device):
        raise ClassifierError(
            f"`engine` {BFLOAT16} needs a processor that computes in 16-bit floats (AVX512-BF16 or"
            " AMX), and a PyTorch that reports it. Leave out --engine, or choose eager."
        )
    example = classifier.normalised(x)
    with _one_path(), torch.inference_mode():
        traced = torch.jit.trace(Narrow(classifier), example, check_trace=False).eval()
    steps = {node.kind() for node in traced.inlined_graph.nodes()} - CONTINUOUS
    if steps:
        raise ClassifierError(
            f"`engine` {BFLOAT16} must be given a model of operations that are known to be continuous,"
            f" got one with {', '.join(sorted(steps))[:200]}. Leave out --engine, or choose eager."
        )
    return Engine(BFLOAT16, _fused(traced, example) if x.device.type == "cpu" else traced)


@contextmanager
def _one_path() -> Iterator[None]:
    """Let tracing fail where the path through a model could depend on the inputs.

    Layers of PyTorch check shapes on the way, which is no such case.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", TracerWarning)
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch\.nn\.")
        yield


class Narrow(nn.Module):
    """A copy of a classifier's model that computes in 16-bit floats."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model = _copy_of(classifier).to(torch.bfloat16)
        self.channels_last = classifier.channels_last
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Normalised inputs to logits, both in 32-bit floats."""
        x = x.to(torch.bfloat16)
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.model(x)
        return logits.float()


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether 16-bit floats can be faster: without such instructions they are many times slower.

    Versions of PyTorch that do not report what the processor can do run without them.
    """
    if device.type != "cpu":
        return True
    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def _fused(traced: nn.Module, example: Tensor) -> nn.Module:
    """The traced model with layers fused by oneDNN, as it runs for the first times."""
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


def import_onnxruntime() -> Any:
    """The module onnxruntime, without its telemetry."""
    # It is on by default and writes a device id under the home folder.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime


def require_engine(name: str) -> None:
    """Raise `ClassifierError` where an engine that was asked for by name is not installed."""
    if name in KINDS and not KINDS[name].is_installed():
        raise ClassifierError(f"`engine` {name} {NEEDS_ONNX}")


class _Logits(nn.Module):
    """A model with nothing but its logits as output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Normalised inputs to logits."""
        return find_logits(self.model(x))


def _copy_of(classifier: Classifier) -> nn.Module:
    if classifier.module is None:
        raise ClassifierError("`engine` must be eager for a model that is not an nn.Module.")
    return _Logits(copy.deepcopy(classifier.module).eval().requires_grad_(False)).eval()


KINDS: dict[str, EngineKind] = {
    BFLOAT16: EngineKind(make_bfloat16, 10.0, lambda: True, coarse=True),
    ONNX: EngineKind(
        make_onnx, 20.0, lambda: all(map(importlib.util.find_spec, ("onnx", "onnxruntime")))
    ),
    INDUCTOR: EngineKind(make_inductor, 900.0, lambda: True),
}
"""All engines, in the order in which they are tried; the first that is faster is taken."""
