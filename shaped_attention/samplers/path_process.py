"""Paths of few tokens in large layers, moved one by one by compiled code."""

from __future__ import annotations

from shaped_attention.numerics.path_plan import PathPlan
from shaped_attention.samplers.blas_process import BlasProcess


class PathProcess(BlasProcess):
    """Paths of a chain, moved one by one; the operations of a layer are compiled."""

    def _plan(self, step: int) -> PathPlan:
        plans = self.task.path_plans
        return plans[step % len(plans)]
