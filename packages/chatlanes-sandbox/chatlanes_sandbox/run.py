"""Runs the sandbox until Ctrl-C: the embedded Redis, the simulator, then the processes that need them.

They stop in reverse order, so a worker that finishes an update can still settle it.
"""

import io
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from redis.exceptions import RedisError

from celery_lanes.embedded_server import HOST, DirectoryTakenError, Server, ServerFailedError, start_server
from celery_lanes.errors import LanesError, complaint
from chatlanes.logs.foreign_text import visible
from chatlanes.logs.process import WRONG_SETTING, warn_of_settings
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.bot_files import bots_in
from chatlanes.settings.running_sandbox import DATA, announced
from chatlanes.updates.intake import Intake
from chatlanes_sandbox.channel import PageChannel
from chatlanes_sandbox.plan import Plan, StartError, environment_of, flower_login_of, parts_of, plan_from, with_a_bot
from chatlanes_sandbox.report import ProgressReport
from chatlanes_sandbox.simulator import Simulator, SimulatorFailedError, start
from chatlanes_sandbox.supervisor import ImportCheck, Supervisor, can_redraw

SIMULATED_TOKEN = "1:SIMULATED"  # noqa: S105 - opens nothing
#: Each run begins elsewhere in the update ids and chats: the lanes remember those of earlier runs.
FIRST_UPDATE_IDS = range(1_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Foundations:
    """The servers that the parts need, if the sandbox started them; None where the settings name another."""

    redis: Server | None
    simulator: Simulator | None

    def supplied(self) -> dict[str, str]:
        """The settings that lead to them."""
        found = {"REDIS_URL": self.redis.url} if self.redis else {}
        if self.simulator:
            found |= {"BOT_TOKEN": self.simulator.token, "BOT_API_URL": self.simulator.url}
        return found

    def watched(self) -> dict[str, Callable[[], bool]]:
        named = {"redis": self.redis, "simulator": self.simulator}
        return {name: foundation.is_running for name, foundation in named.items() if foundation}


#: Errors that end the sandbox with a sentence; any other is a bug and ends it with a traceback.
EXPECTED = (StartError, ServerFailedError, SimulatorFailedError)


def run_command(options: Mapping[str, Any]) -> int:
    """`chatlanes sandbox` with these options. Prints an error, and returns the exit code."""
    # Until the supervisor handles SIGTERM, it stops the started servers, like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The processes run in sessions of their own: closing the terminal reaches only this process.
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # through a pipe too
    try:
        return _failed(run(plan_from(**options)))
    except KeyboardInterrupt:
        return 0
    except SettingsError as error:
        return _failed(str(error), WRONG_SETTING)
    except EXPECTED as error:
        return _failed(str(error))
    finally:
        leave_output()


def _failed(why: str | None, code: int = 1) -> int:
    """0 without a reason."""
    if why is None:
        return 0
    print(visible(why), file=sys.stderr)  # noqa: T201 - the sandbox has no log
    return code


def leave_output() -> None:
    """Python would end with code 120 if its last output cannot be written to a closed terminal."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(plan: Plan) -> str | None:
    """Start everything, wait for its end, stop everything. Returns an error message, or None."""
    settings = load(environment_of(os.environ, bot=plan.bot))
    warn_of_settings(settings)
    if not is_real(settings):
        is_named = "bot" in settings.model_fields_set
        plan = with_a_bot(plan, is_named=is_named)
        settings = load(environment_of(os.environ, bot=plan.bot))
        if not is_named:
            suggest(bots_in(Path.cwd()))
    login = flower_login_of(os.environ)
    with ExitStack() as started:
        say(f"Starting Redis and {'the parts of the bot' if is_real(settings) else 'a simulated Telegram'} …")
        redis = start_redis(plan, settings, started)
        foundations = Foundations(redis, start_simulator(plan, settings, redis, started))
        supplied = foundations.supplied()
        if supplied:
            started.enter_context(announced(plan.data, supplied))
        say(addresses(plan, settings, foundations, login))
        environment = environment_of(os.environ, bot=plan.bot, supplied=supplied, flower_login=login)
        return supervise(plan, settings, environment, foundations)


def is_real(settings: Settings) -> bool:
    """True if the settings name a bot at Telegram."""
    return settings.bot_token is not None or settings.bots is not None


def suggest(paths: Sequence[str]) -> None:
    """For a folder with bots in it, when none is named."""
    if paths:
        say(f"This folder seems to hold a bot. To run it: chatlanes sandbox --bot {paths[0]}")


def hide_from_git(folder: Path) -> None:
    """Make the folder, with a `.gitignore` of everything in it unless the user made it. Raises StartError if no file
    can be written there.
    """
    ignored = folder / ".gitignore"
    try:
        is_ours = not folder.exists() or folder == DATA
        folder.mkdir(parents=True, exist_ok=True)
        if is_ours and not ignored.exists():
            ignored.write_text("*\n")
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StartError(f"--data {folder} cannot be used: {error.strerror or error}") from error


def start_redis(plan: Plan, settings: Settings, started: ExitStack) -> Server | None:
    """None when the settings name one. Raises StartError."""
    if "redis_url" in settings.model_fields_set:
        return None
    hide_from_git(plan.data)
    try:
        return started.enter_context(start_server(plan.redis_data, port=plan.redis_port, ends_with_parent=True))
    except DirectoryTakenError as taken:
        raise StartError(f"{taken}: stop the other sandbox, or pass --data DIR to run a second one.") from taken


def start_simulator(plan: Plan, settings: Settings, redis: Server | None, started: ExitStack) -> Simulator | None:
    """None when there is a real bot to serve."""
    if is_real(settings):
        return None
    hide_from_git(plan.data)
    first = random.choice(FIRST_UPDATE_IDS)  # noqa: S311 - no secret
    environment = environment_of(os.environ, bot=plan.bot, supplied=Foundations(redis, None).supplied())
    simulator = started.enter_context(
        start(
            SIMULATED_TOKEN,
            plan.simulator_port,
            first_update_id=first,
            page=plan.page_data,
            environment={**environment, "BOT_TOKEN": SIMULATED_TOKEN},
        )
    )
    if plan.rate:
        simulator.stream(chats=plan.chats, rate=plan.rate, seed=first, first_chat=first)
    return simulator


def addresses(plan: Plan, settings: Settings, foundations: Foundations, login: str | None) -> str:
    """The addresses to open. Flower's contains its login."""
    redis, simulator = foundations.redis, foundations.simulator
    no_page = "none: it replaces Telegram, and your bot is a real one"
    return f"""
  Page     {simulator.url if simulator else no_page}
  Flower   http://{f"{login}@" if login else ""}{HOST}:{plan.flower_port}
  Bot API  {f"{simulator.url} (simulated, because BOT_TOKEN is not set)" if simulator else settings.bot_api_url}
  Redis    {f"{redis.url} (embedded, its data in {plan.redis_data})" if redis else "the one of REDIS_URL"}
  Bot      {", ".join(bot.bot for bot in settings.served)}

  {in_a_second_terminal(plan.data, foundations.supplied())}
  Ctrl-C stops everything.
"""


def in_a_second_terminal(data: Path, supplied: Mapping[str, str]) -> str:
    """The line to copy. Commands in this folder find the sandbox if its data are in the usual place."""
    program = Path(sys.executable).with_name("chatlanes")
    command = "chatlanes" if shutil.which("chatlanes") or not program.exists() else os.path.relpath(program)
    if data.absolute() == DATA.absolute():
        return f"In a second terminal, in this folder:  {command} lanes status"
    settings = "".join(f"{name}={value} " for name, value in supplied.items())
    return f"In a second terminal:  {settings}{command} lanes status"


def check_redis(settings: Settings) -> None:
    """Raises StartError: the parts would wait for a Redis that does not start, or for a missing token."""
    try:
        Intake.connect(settings.served[0]).close()
    except (RedisError, LanesError) as error:
        raise StartError(
            f"The Redis of REDIS_URL cannot be used: {complaint(error).rstrip('.')}. Start or correct it, or unset "
            "REDIS_URL: then the sandbox starts its own."
        ) from error


def supervise(plan: Plan, settings: Settings, environment: dict[str, str], foundations: Foundations) -> str | None:
    """Run the parts until their end. Returns an error message, or None."""
    simulator = foundations.simulator
    check_redis(load(environment))
    report = ProgressReport(simulator, load(environment)) if simulator else None
    import_check = None
    if simulator and simulator.process:
        import_check = ImportCheck(PageChannel(simulator.process), settings.bot, environment, follows_edits=plan.reload)
    bots = ", ".join(bot.bot for bot in settings.served)
    ready = f"open {simulator.url}, write to the bot" if simulator else "write to the bot in Telegram"
    supervisor = Supervisor(foundations.watched(), import_check, loading=f"loading {bots} …", ready=f"ready: {ready}")
    for part in parts_of(plan, report.arguments(is_live=can_redraw()) if report else None):
        supervisor.add(part, environment)
    ended = supervisor.run()
    if report:
        say(report.line())
    sentence = f"{ended} ended by itself, so everything was stopped. {supervisor.last_words}".rstrip()
    return sentence if ended else None


def say(text: str) -> None:
    with suppress(OSError):  # the terminal may be closed by now
        print(visible(text), flush=True)  # noqa: T201 - the sandbox's own output
