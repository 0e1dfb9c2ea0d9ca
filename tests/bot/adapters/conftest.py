"""What the pipeline's tests are made with."""

from tests.pipeline.conftest import make_pipeline, pipeline, pool, simulated, simulator

__all__ = ["make_pipeline", "pipeline", "pool", "simulated", "simulator"]
