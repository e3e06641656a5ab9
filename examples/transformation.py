"""The worst law of a transformation of your own: the gamma curve of a camera, on digits."""

from __future__ import annotations

import torch

import nppr


def gamma(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    """Every pixel value to the power of gamma, `(N, C, H, W), (N, 1) -> (N, C, H, W)`."""
    return images.clamp_min(1e-6) ** parameters[:, :, None, None]


def main() -> None:
    """Gamma within 0.25 to 4, together with nothing else; then a rotation that is built in."""
    curve = nppr.CustomTransform({"gamma": (0.25, 4.0)}, gamma, label="gamma", neutral=(1.0,))
    for budget in (nppr.Budget.box(curve), nppr.Budget.box("rotate=20")):
        report = nppr.assess("digits-cnn", "digits", budget=budget, measure=nppr.Measure(draws=16))
        print(report.table())


if __name__ == "__main__":
    main()
