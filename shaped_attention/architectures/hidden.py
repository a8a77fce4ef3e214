"""Activations by the names that configurations use."""

from __future__ import annotations

from shaped_attention.architectures.fields import Fields

_NAMES = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "plain_relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def activation_of(fields: Fields, name: str, default: str) -> str:
    """Return the package's name of the activation in a field."""
    return _NAMES[fields.choice(name, default, _NAMES)]
