"""The simulated Bot API as a service of the network of containers: under the name `telegram`, on every address."""

from sandbox.ports import NAMES
from sandbox.simulator.bot import SimulatedBot
from sandbox.simulator.serve import serve

if __name__ == "__main__":
    serve(SimulatedBot("1:TEST"), 8081, host="0.0.0.0", names=NAMES | {"telegram"})  # noqa: S104 - its own network
