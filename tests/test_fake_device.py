"""Every sampler on a device that is not there (`fake_device`): the host waits for no number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import shaped_attention as sa
from shaped_attention.architectures import simulate
from shaped_attention.samplers import loop
from shaped_attention.samplers.steppers import tiles_on_device
from shaped_attention.samplers.steppers.torch_descriptions import DeviceArrays
from tests.fake_device import Waits, fake_device

V0 = sa.equicorrelated(4, 0.3)
RUN: dict[str, Any] = {"samples": 3, "seed": 1, "device": "cuda", "progress": False}
CHAIN: dict[str, Any] = {"width": 16, "depth": 1, **RUN}
LIMIT: dict[str, Any] = {"horizon": 0.06, "step": 0.02, **RUN}
ATTENTION = sa.ShapedAttention(0.3, mask="causal", heads=2, output_projection=True)
SMOOTH = sa.ShapedMLP(0.3, activation="gelu", scale=1.0)
LAYERS = {
    "attention": sa.ShapedAttention(0.3),
    "heads": sa.ShapedAttention(0.3, heads=2, output_projection=False),
    "transformer": [ATTENTION, sa.ShapedMLP(0.5)],
    "LayerNorm": sa.Normalised(ATTENTION, norm="layer"),
    "sandwich": sa.Normalised(SMOOTH, place="sandwich"),
    "parallel": sa.Parallel(ATTENTION, SMOOTH),
    "pattern": sa.Pattern([sa.ShapedAttention(0.3), SMOOTH]),
    "schedule": sa.ShapedAttention(sa.Schedule([(0.0, 0.1), (1.0, 0.5)])),
}
WIDE = [("attention", "float64")]
WITH_LIMIT = ["attention", "transformer", "schedule"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Run a test with tensors without numbers, and count what the host asks for."""
    yield from fake_device(monkeypatch)


@pytest.mark.parametrize(("name", "dtype"), [*product(LAYERS, ["float32"]), *WIDE])
def test_chains_and_networks_stay_on_the_device(name: str, dtype: str, waits: Waits) -> None:
    for sampler in (sa.simulate_chain, sa.simulate_network):
        run = sampler(LAYERS[name], V0, **CHAIN, dtype=dtype)
        assert run["V"].shape == (2, 3, 4, 4)


@pytest.mark.filterwarnings("ignore:method=")  # Every answer is 1, times of explosions too.
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", WITH_LIMIT)
def test_limits_stay_on_the_device(name: str, dtype: str, waits: Waits) -> None:
    # Not torchsde, which keeps the state of the device's generator, of which there is none here,
    # and reads its times from tensors, which have no numbers in this mode.
    for method in ("direct", "clock"):
        run = sa.integrate_sde(LAYERS[name], V0, **LIMIT, method=method, dtype=dtype)
        assert run["V"].shape == (2, 3, 4, 4)


def _counts(waits: Waits, runs: Iterable[Callable[[], object]]) -> Iterator[int]:
    for run in runs:
        waits.count = 0
        run()
        yield waits.count


@pytest.mark.filterwarnings("ignore:method=")
def test_with_fixed_steps_the_host_waits_only_when_it_stores(waits: Waits) -> None:
    layer = LAYERS["attention"]
    for sampler in (sa.simulate_chain, sa.simulate_network):
        runs = [partial(sampler, layer, V0, **{**CHAIN, "depth": depth}) for depth in (1, 3)]
        short, long = _counts(waits, runs)
        assert short == long > 0
    limit = partial(sa.integrate_sde, layer, V0, method="direct")
    short, long = _counts(
        waits, [partial(limit, **{**LIMIT, "horizon": horizon}) for horizon in (0.06, 0.18)]
    )
    assert short == long > 0


class Calls(TorchDispatchMode):
    """The number of batched products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), named: Any = None):
        self.count += function is torch.ops.aten.bmm.default
        return function(*args, **(named or {}))


class Recorder:
    """A compiler whose kernels keep their launches, and move nothing."""

    launches: ClassVar[list[list[Any]]] = []

    def __init__(self, source: str, packed: Any, precision: str, device: torch.device) -> None:
        assert device.type == "cuda"
        self.source = source

    def __call__(self, rows: int, first: Any, rest: Any) -> None:
        tensors = [x for x in (*first, *rest) if isinstance(x, torch.Tensor)]
        # One on the host would be read from where the device cannot read.
        assert all(x.device.type == "cuda" and x.is_contiguous() for x in tensors)
        self.launches.append([rows, *(x for x in rest if not isinstance(x, torch.Tensor))])


def _by_kernel(spec: Any, task: Any) -> Any:
    if spec.device.type != "cuda" or not tiles_on_device.can_run(spec, task):
        return None
    return tiles_on_device.DeviceStepper(task, spec.device, spec.precision, Recorder)


@pytest.fixture
def launches(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Run a test as on a device that compiles kernels, and list their launches."""
    monkeypatch.setattr(tiles_on_device, "stepper_of", _by_kernel)
    # Paths take as many steps in a launch as they are asked for, however long the first takes.
    monkeypatch.setattr(loop, "_SLICE", 1e9)
    monkeypatch.setattr(Recorder, "launches", [])
    return Recorder.launches


@pytest.mark.filterwarnings("ignore:method=")
@pytest.mark.parametrize("kind", ["chain", "direct"])
def test_one_launch_takes_many_steps_of_all_paths(
    kind: str, launches: list[list[Any]], waits: Waits
) -> None:
    """From the second launch on, one to each stored time; the host waits only when it stores."""
    counts = []
    for steps in (40, 400):
        launches.clear()
        waits.count = 0
        common: dict[str, Any] = {**RUN, "save_every": steps // 4}
        if kind == "chain":
            sa.simulate_chain(LAYERS["attention"], V0, width=16, depth=steps, **common)
        else:
            sa.integrate_sde(
                LAYERS["attention"], V0, horizon=0.01 * steps, step=0.01, method="direct", **common
            )
        # Rows, radius, dt, rows, first, scheduled, columns of the table, begin, end.
        spans = [(launch[-2], launch[-1]) for launch in launches]
        assert [begin for begin, _ in spans[1:]] == [end for _, end in spans[:-1]]
        assert (spans[0], spans[-1][1]) == ((0.0, 1.0), steps)
        assert {launch[0] for launch in launches} == {3}
        counts.append((len(launches), waits.count))
    assert counts[0] == counts[1]
    assert counts[0][0] <= 5


def test_by_the_clock_a_launch_passes_all_stored_times(
    launches: list[list[Any]], waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for steps, saved in ((40, 4), (400, 8)):
        launches.clear()
        waits.count = 0

        def arrived(_: Any, values: torch.Tensor, steps: int = steps) -> Any:
            """Tell the host that all paths are at the last grid point."""
            return waits.ones(values) * (steps if values.dtype == torch.int64 else 1)

        monkeypatch.setattr(DeviceArrays, "on_host", arrived)
        sa.integrate_sde(
            LAYERS["attention"], V0, horizon=0.01 * steps, step=0.01, method="clock",
            save_every=steps // saved, **RUN,
        )  # fmt: skip
        # Rows, radius, dt, rows, first, scheduled, columns of the table, end, budget, ...
        assert [launch[7] for launch in launches] == [steps]
        counts.append(waits.count - 2 * saved)
    # At a stored time only flags are read: which paths have to move, and which have stopped.
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore:method=")
@pytest.mark.parametrize("kind", ["chain", "direct"])
def test_many_tokens_move_by_batched_calls_of_libraries(
    kind: str, launches: list[list[Any]], waits: Waits
) -> None:
    """More paths need no more calls, and no kernel is launched."""
    tokens, calls = tiles_on_device.MOST_TOKENS + 1, []
    for samples in (2, 50):
        run: dict[str, Any] = {**RUN, "samples": samples, "chunk": samples}
        with Calls() as counted:
            if kind == "chain":
                sa.simulate_chain(
                    LAYERS["attention"], sa.equicorrelated(tokens, 0.3), width=256, depth=2, **run
                )
            else:
                sa.integrate_sde(
                    LAYERS["attention"], sa.equicorrelated(tokens, 0.3), horizon=0.02, step=0.01,
                    method="direct", **run,
                )  # fmt: skip
        calls.append(counted.count)
    assert launches == []
    assert calls[0] == calls[1] > 0


class Precisions(TorchDispatchMode):
    """How products of matrices in float32 are computed: TF32 is 'high'."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[torch.dtype, str]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), named: Any = None):
        if function is torch.ops.aten.bmm.default:
            self.seen.add((args[0].dtype, torch.get_float32_matmul_precision()))
        return function(*args, **(named or {}))


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_products_are_in_tf32_only_on_request(precision: str, waits: Waits) -> None:
    """That of a caller is used and left as it is."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with Precisions() as found:
            sa.simulate_network(LAYERS["attention"], V0, **CHAIN, dtype="float32")
        # Norms of V are in double precision.
        assert found.seen == {(torch.float32, precision), (torch.float64, precision)}
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


MODELS = {
    "gpt2": {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 8},
    "llama": {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50,
        "num_key_value_heads": 2, "intermediate_size": 48,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_stay_on_the_device(
    name: str, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"model_type": name, **MODELS[name]}

    def run(entropy: bool) -> None:
        # Every answer is 1, so that all paths count as stopped at time 1: the run went to its end.
        with pytest.raises(FloatingPointError, match="covariances of 3 of 3 samples"):
            sa.simulate_model(config, 3, **RUN, entropy=entropy)

    without, whole = _counts(waits, [partial(run, entropy) for entropy in (False, True)])
    # The factors before the only layer, and its entropies, which are computed on the device.
    assert whole == without + 2
    monkeypatch.setattr(simulate, "chunk_size", lambda *_: 2)
    (parts,) = _counts(waits, [partial(run, True)])
    assert parts == whole + 1


def _there(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor like one, on the device."""
    there = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    return torch.nn.Parameter(there) if isinstance(x, torch.nn.Parameter) else there


def _read(values: torch.Tensor) -> Any:
    """Return ones for a tensor on the host; one on a device would have to be copied first."""
    assert values.device.type == "cpu"
    return np.ones(tuple(values.shape))


@pytest.mark.parametrize("inputs", ["ids", "dict"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_library_are_recorded_on_the_device(
    name: str, inputs: str, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their inputs are moved there, and what is recorded comes back."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(FakeTensor, "numpy", _read, raising=False)
    # torch's own function needs a build with CUDA.
    monkeypatch.setattr(FakeTensor, "contiguous", lambda x: torch.clone(x), raising=False)
    config = transformers.AutoConfig.for_model(name, **MODELS[name])
    with _disable_current_modes(), torch.random.fork_rng():
        model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    # `model.to("cuda")` needs a build with CUDA.
    for module in model.modules():
        for values in (module._parameters, module._buffers):
            for key, x in values.items():
                values[key] = x if x is None else _there(x)
    ids = [[1, 2, 3], [4, 5, 6]]
    record = sa.record_covariances(
        model, ids if inputs == "ids" else {"input_ids": torch.tensor(ids)}
    )
    assert {x.device.type for x in model.parameters()} == {"cuda"}
    assert record["V"].shape == (2, 2, 3, 3)
    assert record["attention_entropy"].shape == (1, MODELS[name].get("n_head", 4), 2, 3)


def _of_two_devices(x: torch.Tensor) -> object:
    return x + torch.ones(3, device="cpu")


def _asking(x: torch.Tensor) -> object:
    return bool((x > 0).any())


@pytest.mark.parametrize("planted", [_of_two_devices, _asking])
def test_a_planted_error_fails(planted: Callable[[torch.Tensor], object], waits: Waits) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises((RuntimeError, DataDependentOutputException, UnsupportedOperatorException)):
        planted(x)
