"""Libraries restricted to one thread while paths are moved, so that results have the same bits.

A library that divides a product among threads adds its terms in another order. Chunks of paths are
divided among threads of our own instead.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import OpenBLASController, ThreadpoolController

from shaped_attention.lazy_torch import torch

_controller: ThreadpoolController | None = None
_lock = threading.Lock()
_inside = 0
_limits: ExitStack | None = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict BLAS and LAPACK to one thread.

    The setting is global to the process: the first to enter makes it, the last to leave restores
    it.
    """
    global _controller, _inside, _limits
    with _lock:
        if _inside == 0:
            if _controller is None:
                _controller = ThreadpoolController()
            _take_control()
            _limits = ExitStack()
            _limits.enter_context(_controller.limit(limits=1, user_api="blas"))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _limits is not None:
                _take_control()
                _limits.close()
                _limits = None


def _take_control() -> None:
    """Let this thread set the number of threads of OpenBLAS.

    Since version 3.8 of threadpoolctl only the first thread to set it can: calls from others do
    nothing, so that the restriction would fail inside a `threadpool_limits` of the caller, and
    would outlast a run whose last worker is not its first.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_torch_inside = 0
_torch_threads = 1


@contextmanager
def one_thread_of_worker() -> Iterator[None]:
    """Restrict BLAS, LAPACK and torch to one thread, on a thread that ends afterwards.

    Torch keeps a number of threads for each thread that calls it, and one for those that begin. The
    first to enter saves the latter, and the last to leave restores it.
    """
    global _torch_inside, _torch_threads
    with one_thread():
        if "torch" not in sys.modules:
            yield
            return
        with _lock:
            if _torch_inside == 0:
                _torch_threads = torch.get_num_threads()
            _torch_inside += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with _lock:
                _torch_inside -= 1
                if _torch_inside == 0:
                    torch.set_num_threads(_torch_threads)
