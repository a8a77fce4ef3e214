"""Shape checks at run time, and fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook
from matplotlib.figure import Figure

from tests import quick, shapes

# Array shapes in annotations are checked while the tests run. The hook must be there before the
# modules are first imported.
_BLOCKS = Path(__file__).parents[1] / "shaped_attention" / "blocks"
_CHECKED = [
    # Small matrices of the derivation of limits have no annotated shapes, and are many.
    *(f"blocks.{x.name}" for x in iter_modules([str(_BLOCKS)]) if not x.ispkg),
    "numerics.covariance",
    "numerics.draws",
    "samplers.chain",
    "samplers.network",
    "samplers.specification",
    "samplers.sde",
    "theory.drift_diffusion",
]
install_import_hook([f"shaped_attention.{name}" for name in _CHECKED], "tests.shapes.checked")


# A shell lets programs in its background ignore interrupts, and so would those that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before tests are left out for their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that the planted errors name as `quick`, next to those that say so."""
    for item in items:
        if (
            item.get_closest_marker("validation") is None
            and quick.names_of(item.nodeid) & quick.NAMED
        ):
            item.add_marker("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which the quick suite runs nothing."""
    if config.option.markexpr != "quick" or collection_path.suffix != ".py":
        return None
    return not quick.has_quick_tests(collection_path) or None


@pytest.fixture(autouse=True)
def shapes_checked() -> None:
    """In every test; `shapes` says for how long."""
    shapes.start()


@pytest.fixture(autouse=True)
def global_generators_untouched() -> Iterator[None]:
    """No test, and so no function of the package, may move numpy's or torch's generator."""
    before = np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    yield
    assert np.random.get_state()[1].tobytes() == before[0]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes in place of images, which take most of the time of a command."""
    monkeypatch.setattr(
        Figure, "savefig", lambda _, path, **options: Path(path).write_bytes(os.urandom(8))
    )


@pytest.fixture(autouse=True, scope="session")
def one_thread_for_each_worker() -> None:
    """Where tests run in several processes, threads of theirs would only wait for each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
