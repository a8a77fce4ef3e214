"""Libraries restricted to one thread while paths are moved, so that results have the same bits.

A library that divides a product among threads adds its terms in another order. Chunks of paths are
divided among threads of our own instead.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import ThreadpoolController

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
            _limits = ExitStack()
            _limits.enter_context(_controller.limit(limits=1, user_api="blas"))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _limits is not None:
                _limits.close()
                _limits = None


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
