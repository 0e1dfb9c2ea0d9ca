"""The simulated Bot API as a service on the containers' network: under the name `telegram`, on every address."""

from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.client import NAMES
from chatlanes_sandbox.simulator.server import serve

if __name__ == "__main__":
    serve(SimulatedBot("1:TEST"), 8081, host="0.0.0.0", names=NAMES | {"telegram"})  # noqa: S104 - a private network
