"""The fixtures of the pipeline tests."""

from tests.pipeline.conftest import make_pipeline, pipeline, pool, simulated, simulator

__all__ = ["make_pipeline", "pipeline", "pool", "simulated", "simulator"]
