"""The changes: a fence comparison dropped or inverted, an off-by-one, a removal left out, a time halved, and more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LUA = "packages/celery-lanes/celery_lanes/protocol/lua"
PYTHON = "packages/celery-lanes/celery_lanes"


@dataclass(frozen=True)
class Change:
    """`old`, which occurs once in the file, becomes `new`. The name says what is then wrong."""

    name: str
    file: str
    old: str
    new: str

    def make(self, root: Path) -> None:
        path = root / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


IN_LUA = (
    Change(
        "messages that are given back together are handed out in reverse",
        f"{LUA}/lib/places.lua",
        "a[1] > b[1]",
        "a[1] < b[1]",
    ),
    Change(
        "an element that is moved into a lane stays in its list",
        f"{LUA}/adopt.lua",
        "if indexes[1] then redis.call('LREM'",
        "if not indexes[1] then redis.call('LREM'",
    ),
    Change(
        "the list loses an element that a worker has not taken",
        f"{LUA}/adopt.lua",
        "-redis.call('LLEN', KEYS[1])) - 1",
        "-redis.call('LLEN', KEYS[1]))",
    ),
    Change(
        "a copy of a timer replaces it",
        f"{LUA}/adopt.lua",
        "if timer ~= '' and redis.call('ZSCORE', TIMERS, timer) then return KNOWN end",
        "",
    ),
    Change(
        "a message with an eta is moved into its lanes at once",
        f"{LUA}/adopt.lua",
        "tonumber(at_ms) > now_ms",
        "tonumber(at_ms) < now_ms",
    ),
    Change(
        "a message moves out before another one of its lane",
        f"{LUA}/move_out.lua",
        "  if not is_first_in_all(id, split(lanes)) then return 0 end\n",
        "",
    ),
    Change(
        "a message moves out while a worker has it",
        f"{LUA}/move_out.lua",
        "delayed = true }",
        "delayed = true, leased = true }",
    ),
    Change(
        "a timer that has fired moves out",
        f"{LUA}/move_out.lua",
        "  if not redis.call('ZSCORE', TIMERS, timer) then return 0 end\n",
        "",
    ),
    Change(
        "a message that has joined a group moves out without it",
        f"{LUA}/move_out.lua",
        "redis.call('GET', BODY .. id) ~= stored or",
        "",
    ),
    Change(
        "a stopped message is stopped again",
        f"{LUA}/lib/joining.lua",
        "if stopped or is_unstoppable or",
        "if is_unstoppable or",
    ),
    Change(
        "an unstoppable message is stopped",
        f"{LUA}/lib/joining.lua",
        "if stopped or is_unstoppable or",
        "if stopped or",
    ),
    Change(
        "a message joins a stopped group",
        f"{LUA}/lib/joining.lua",
        "or size > most or stopped then return false end",
        "or size > most then return false end",
    ),
    Change(
        "a stop ends a shielded run",
        f"{LUA}/lib/joining.lua",
        "if state ~= 'leased' or not is_shielded then end_stopped",
        "if state ~= 'leased' or is_shielded then end_stopped",
    ),
    Change(
        "the shield of a stopped message ends its run",
        f"{LUA}/shield.lua",
        "redis.call('HGET', MESSAGE .. id, 'stopped') == fence",
        "redis.call('HGET', MESSAGE .. id, 'stopped')",
    ),
    Change(
        "a message gets the mode of its second lane",
        f"{LUA}/append.lua",
        "in_mode(keys[1], group",
        "in_mode(keys[2] or keys[1], group",
    ),
    Change(
        "messages of a lane with the mode queue are collected",
        f"{LUA}/append.lua",
        "if mode == 'queue' then return '', bare end",
        "if mode == 'queue' then return group, stored end",
    ),
    Change(
        "a run takes what another queue has",
        f"{LUA}/lib/joining.lua",
        "or its[2] ~= mine[2] or its[3] ~= queue or its[4]",
        "or its[2] ~= mine[2] or its[4]",
    ),
    Change(
        "a run takes what was leased before",
        f"{LUA}/lib/joining.lua",
        "or its[3] ~= queue or its[4] or",
        "or its[3] ~= queue or",
    ),
    Change(
        "a message that is taken is also the next run",
        f"{LUA}/take.lua",
        "  if size > 1 then",
        "  if size > 0 then",
    ),
    Change(
        "a take whose answer was lost takes another message",
        f"{LUA}/take.lua",
        "if place ~= '' and #taken > tonumber(known) then",
        "if place ~= '' and #taken < tonumber(known) then",
    ),
    Change(
        "what is given back goes behind the messages that follow",
        f"{LUA}/leave.lua",
        "bodies .. redis.call('GET', BODY .. follower))",
        "redis.call('GET', BODY .. follower) .. bodies)",
    ),
    Change(
        "what a replayed message gives back goes in front of it",
        f"{LUA}/leave.lua",
        "if tonumber(its_seq) <= seq then",
        "if tonumber(its_seq) < 0 then",
    ),
    Change(
        "a dropped message counts in its rate",
        f"{LUA}/append.lua",
        "if turn_us <= now_us or over == 'delay' then known",
        "if true then known",
    ),
    Change(
        "each message over its rate is marked",
        f"{LUA}/append.lua",
        "if over == 'mark' and known.marked_us <= now_us then",
        "if over == 'mark' then",
    ),
    Change(
        "a rate waits for a clock that was set back",
        f"{LUA}/append.lua",
        "math.max((tonumber(at) or 0) - now_us, 0)",
        "0",
    ),
    Change(
        "a message makes the one before it due before its turn",
        f"{LUA}/lib/places.lua",
        "if found[3] and tonumber(due_ms) > now_ms then return end",
        "",
    ),
    Change(
        "a message over its rate ends a run",
        f"{LUA}/lib/joining.lua",
        "if turn_ms and (fence or not turn or state == 'ready' or step.unwritten[id]) then return false end",
        "",
    ),
    Change(
        "a message that was leased before is gathered",
        f"{LUA}/gather.lua",
        "if not is_same or found[4] or",
        "if not is_same or",
    ),
    Change(
        "a message that does not follow directly is gathered",
        f"{LUA}/gather.lua",
        "or same_in_all(keys, 1) ~= follower then",
        "then",
    ),
    Change(
        "one more has a permit than may run",
        f"{LUA}/lib/ready.lua",
        "'-inf', '(0') >= most then",
        "'-inf', '(0') > most then",
    ),
    Change(
        "the youngest gets the permit",
        f"{LUA}/lib/ready.lua",
        "redis.call('ZADD', LIMIT .. key, number_of(",
        "redis.call('ZADD', LIMIT .. key, 9e15 - number_of(",
    ),
    Change(
        "a message needs a permit of its first limit only",
        f"{LUA}/lib/ready.lua",
        "      if not wait_for_permit(id, limits) then\n",
        "      if true then\n",
    ),
    Change(
        "permits are given in any order of their limits",
        f"{LUA}/lib/ready.lua",
        "if not first or key < first then first = key end",
        "if not first or key > first then first = key end",
    ),
    Change(
        "a permit that becomes free is not given",
        f"{LUA}/lib/ready.lua",
        "redis.call('ZREM', LIMIT .. key, id) == 1 then step.contested[key] = true end",
        "redis.call('ZREM', LIMIT .. key, id) == 2 then step.contested[key] = true end",
    ),
    Change(
        "a settled message keeps its permits",
        f"{LUA}/lib/ending.lua",
        "  if keys.limits then leave_limits(id, keys.limits) end\n",
        "",
    ),
    Change(
        "a delayed message keeps its permits",
        f"{LUA}/lib/ending.lua",
        "if state ~= 'ready' and state ~= 'committing' then leave_limits",
        "if state ~= 'ready' and state ~= 'committing' and state ~= 'delayed' then leave_limits",
    ),
    Change(
        "a message that is taken back loses its permits",
        f"{LUA}/lib/ending.lua",
        "if state ~= 'ready' and state ~= 'committing' then leave_limits",
        "if state ~= 'committing' then leave_limits",
    ),
    Change(
        "a message in a paused lane keeps its permits",
        f"{LUA}/lib/ready.lua",
        "  leave_limits(id, limits)\n  return true\n",
        "  return true\n",
    ),
    Change(
        "a permit of a paused limit is given",
        f"{LUA}/lib/ready.lua",
        "elseif is_paused('lane', key) or redis.call('ZCOUNT'",
        "elseif redis.call('ZCOUNT'",
    ),
    Change(
        "a resumed limit is not continued",
        f"{LUA}/resume.lua",
        "  step.contested[named] = true\n",
        "",
    ),
    Change(
        "an appended message takes no place",
        f"{LUA}/append.lua",
        "if (lanes.limits or paced_until(lanes)) and state",
        "if paced_until(lanes) and state",
    ),
    Change(
        "a stopped message that waits for a permit stays there",
        f"{LUA}/lib/joining.lua",
        "  if state == 'gated' then leave_limits",
        "  if state == 'none' then leave_limits",
    ),
    Change(
        "the permit of a message that does not run stays taken",
        f"{LUA}/repair.lua",
        "if state ~= 'gated' and not HAS_PERMITS[state] then",
        "if state ~= 'gated' and HAS_PERMITS[state] then",
    ),
    Change(
        "the second of two rates is not kept",
        f"{LUA}/lib/ready.lua",
        "until_ms = math.max(until_ms, next_ms or 0)",
        "until_ms = math.max(now_ms, next_ms or 0)",
    ),
    Change(
        "a settled run does not count for its rate",
        f"{LUA}/turn.lua",
        "    note_start(lanes, ARGV[i + 1])\n",
        "",
    ),
    Change(
        "a committed run does not count for its rate",
        f"{LUA}/commit.lua",
        "note_start(lanes, fence)\n",
        "",
    ),
    Change(
        "a run that is taken back does not count for its rate",
        f"{LUA}/lib/ending.lua",
        "if found[3] == 'leased' and not never_ran then",
        "if found[3] == 'leased' and never_ran then",
    ),
    Change(
        "the pace is counted from the end of a run",
        f"{LUA}/lib/ending.lua",
        "math.ceil(math.min(tonumber(fence) or now_us, now_us) / 1000)",
        "now_ms",
    ),
    Change(
        "a fence from the future is the time of a start",
        f"{LUA}/lib/ending.lua",
        "math.min(tonumber(fence) or now_us, now_us)",
        "(tonumber(fence) or now_us)",
    ),
    Change(
        "an appended message does not wait for the rate",
        f"{LUA}/append.lua",
        "if (lanes.limits or paced_until(lanes)) and state == 'ready' then",
        "if lanes.limits and state == 'ready' then",
    ),
    Change("a replayed message stays stopped", f"{LUA}/replay.lua", "'alive', 'stopped')", "'alive')"),
    Change(
        "an old fence holds the lease",
        f"{LUA}/lib/prelude.lua",
        "found[1] == 'leased' and found[2] == fence",
        "found[1] == 'leased'",
    ),
    Change(
        "a message that is not leased is held",
        f"{LUA}/lib/prelude.lua",
        "found[1] == 'leased' and found[2] == fence",
        "found[2] == fence",
    ),
    Change("a fence does not grow", f"{LUA}/lib/prelude.lua", "digits(last + 1)", "digits(last)"),
    Change(
        "a fence stays behind the clock",
        f"{LUA}/lib/prelude.lua",
        "last < now_us and clock_fence",
        "last > now_us and clock_fence",
    ),
    Change(
        "a taken message keeps its fence",
        f"{LUA}/lib/ending.lua",
        "'state', state, 'fence', next_fence(found[1]))",
        "'state', state)",
    ),
    Change(
        "a taken message keeps its lease",
        f"{LUA}/lib/ending.lua",
        "  redis.call('ZREM', LEASES, id)\n  local limits",
        "  local limits",
    ),
    Change(
        "a settled message keeps its lease",
        f"{LUA}/lib/ending.lua",
        "  call_in_batches('ZREM', LEASES, step.settled_ids)\n",
        "",
    ),
    Change(
        "a settled message stays pending",
        f"{LUA}/lib/ending.lua",
        "call_in_batches('ZREM', PENDING .. group, step.settled_ids)",
        "call_in_batches('ZREM', PENDING .. group, {})",
    ),
    Change(
        "a settled message stays in a lane with others",
        f"{LUA}/lib/ending.lua",
        "else redis.call('ZREM', lane, id) end",
        "end",
    ),
    Change(
        "the next message of a lane is not made ready",
        f"{LUA}/lib/ending.lua",
        "if following[key] then advance_lane(key, following[key]) end",
        "",
    ),
    Change(
        "the second message of a lane follows, not the first",
        f"{LUA}/lib/ending.lua",
        "(ids[1] == id and ids[2] or ids[1])",
        "(ids[1] == id and ids[1] or ids[2])",
    ),
    Change(
        "a message is ready before it is first in all its lanes",
        f"{LUA}/lib/ending.lua",
        "(lanes == key or is_first_in_all(first, split(lanes), key))",
        "true",
    ),
    Change(
        "first in any lane is first in all",
        f"{LUA}/lib/ready.lua",
        "~= id then return false end\n  end\n  return true",
        "== id then return true end\n  end\n  return false",
    ),
    Change(
        "a buried message stays pending",
        f"{LUA}/lib/ending.lua",
        "  redis.call('ZREM', PENDING .. group_of(queue), id)\n  add_dead_letter",
        "  add_dead_letter",
    ),
    Change("a death is not counted", f"{LUA}/lib/ending.lua", "'died', 1)", "'died', 0)"),
    Change(
        "a returned message goes to the end of its queue",
        f"{LUA}/lib/places.lua",
        "redis.call('RPUSH', queue, each[2])",
        "redis.call('LPUSH', queue, each[2])",
    ),
    Change(
        "ready messages of a queue are in the opposite order",
        f"{LUA}/lib/ready.lua",
        "call_in_batches('LPUSH', queue, ids)",
        "call_in_batches('RPUSH', queue, ids)",
    ),
    Change(
        "no worker is woken",
        f"{LUA}/lib/ready.lua",
        "redis.call('LPUSH', BELL .. queue, 1)",
        "redis.call('EXISTS', BELL .. queue)",
    ),
    Change(
        "a turn hands out one message too many",
        f"{LUA}/turn.lua",
        "if taken >= room or budget == 0",
        "if taken > room or budget == 0",
    ),
    Change(
        "a message is handed out once more than max_deaths",
        f"{LUA}/turn.lua",
        "if died >= tonumber(max_deaths) then",
        "if died > tonumber(max_deaths) then",
    ),
    Change(
        "a suspect runs beside others",
        f"{LUA}/turn.lua",
        "if died >= SUSPECT_AFTER and holding + taken > 0 then",
        "if died > SUSPECT_AFTER and holding + taken > 0 then",
    ),
    Change(
        "a message in another state is handed out",
        f"{LUA}/turn.lua",
        "if record[1] ~= 'ready' and not step.unwritten[id] then return 0 end",
        "",
    ),
    Change("a lease is half as long", f"{LUA}/turn.lua", "now_ms + lease_ms)", "now_ms + lease_ms / 2)"),
    Change(
        "a renewal is half as long", f"{LUA}/renew.lua", "now_ms + lease_ms, ARGV[i]", "now_ms + lease_ms / 2, ARGV[i]"
    ),
    Change(
        "a renewal reports kept leases as lost",
        f"{LUA}/renew.lua",
        "if holds(ARGV[i], ARGV[i + 1]) then",
        "if not holds(ARGV[i], ARGV[i + 1]) then",
    ),
    Change(
        "a begin needs no lease", f"{LUA}/begin.lua", "if not check_lease(id, fence) then return { 'lost' } end", ""
    ),
    Change(
        "a call that is in doubt is made again",
        f"{LUA}/begin.lua",
        "(found.state == 'begun' and found.by ~= fence)",
        "(found.state == 'begun' and found.by == fence)",
    ),
    Change(
        "a recorded call is made again", f"{LUA}/begin.lua", "found.state == 'done' or", "found.state == 'never' or"
    ),
    Change("a commit needs no lease", f"{LUA}/commit.lua", "if not queue then return 0 end\n", ""),
    Change("a commit makes its writes and does not settle", f"{LUA}/commit.lua", "settle(id, queue, lanes)\n", ""),
    Change(
        "a note is not deleted",
        f"{LUA}/lib/committing.lua",
        "redis.call('HDEL', NOTES, key)",
        "redis.call('HLEN', NOTES)",
    ),
    Change("a message has no note", f"{LUA}/turn.lua", "return lane and redis.call('HGET', NOTES, lane)", "return nil"),
    Change("a retry needs no lease", f"{LUA}/retry.lua", "if not check_lease(id, fence) then return 0 end\n", ""),
    Change("a failure is not counted", f"{LUA}/retry.lua", "'failed', 1)", "'failed', 0)"),
    Change(
        "a park counts as a failure",
        f"{LUA}/park.lua",
        "redis.call('HDEL', MESSAGE .. id, 'alive')",
        "redis.call('HINCRBY', MESSAGE .. id, 'failed', 1)",
    ),
    Change(
        "an append with an old guard adds", f"{LUA}/append.lua", "~= fence then return false end", "~= fence then end"
    ),
    Change(
        "a message that was seen is added again",
        f"{LUA}/append.lua",
        "if was_remembered(scope, number, seen_block, seen_ttl_s) then",
        "if was_remembered(scope, number, seen_block, seen_ttl_s) and false then",
    ),
    Change(
        "a replayed message keeps its failures",
        f"{LUA}/replay.lua",
        "'failed', 'died', 'parked', 'alive', ",
        "'parked', 'alive', ",
    ),
    Change(
        "a sweep takes leases that have not expired",
        f"{LUA}/sweep.lua",
        "redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, limit)",
        "redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms + lease_ms / 2, 'WITHSCORES', 'LIMIT', 0, limit)",
    ),
    Change(
        "a sweep does not count deaths",
        f"{LUA}/sweep.lua",
        "function(id, at_ms) count_death(id, at_ms - lease_ms) end",
        "function() end",
    ),
)

CLIENT = f"{PYTHON}/protocol/client.py"
IN_FLIGHT, BACKGROUND = f"{PYTHON}/leases/in_flight.py", f"{PYTHON}/leases/background.py"
ACKS, DELIVERY = f"{PYTHON}/leases/pending_acks.py", f"{PYTHON}/worker/delivery.py"
JOURNAL, REQUEST = f"{PYTHON}/worker/journal.py", f"{PYTHON}/worker/request.py"
OUTBOX = f"{PYTHON}/outbox.py"

IN_PYTHON = (
    Change(
        "a message starts after its lease is over",
        IN_FLIGHT,
        "if (start_by_s or now_s) >= message.deadline_s:",
        "if (start_by_s or now_s) >= message.deadline_s + self.lease_s:",
    ),
    Change(
        "a released message is claimed",
        IN_FLIGHT,
        "            if message is None:\n                return False\n            if message.claimed_s is None:",
        "            if message is None:\n                return True\n            if message.claimed_s is None:",
    ),
    Change(
        "a renewal is believed for two leases",
        IN_FLIGHT,
        "message.deadline_s = asked_s + self.lease_s",
        "message.deadline_s = asked_s + 2 * self.lease_s",
    ),
    Change(
        "a lost lease is not noticed",
        IN_FLIGHT,
        "                elif message.is_started:\n                    self._mark_lost(message)\n",
        "                elif message.is_started:\n",
    ),
    Change(
        "the death of a process counts for messages that had not started",
        IN_FLIGHT,
        "died=died and message.is_started",
        "died=died",
    ),
    Change(
        "a started message is buried as one that has not",
        IN_FLIGHT,
        "if message.claimed_s is not None or message.may_start(clock.now_s()):",
        "if message.may_start(clock.now_s()):",
    ),
    Change(
        "the lease of a message whose settle is not sent yet ends",
        IN_FLIGHT,
        "return [*held, *self.pending_acks.settles()]",
        "return held",
    ),
    Change(
        "a reconcile releases a message whose retry is not sent yet",
        IN_FLIGHT,
        "return [*(message_id for message_id, _ in self._leases()), *self.pending_acks.unheld_ids()]",
        "return [message_id for message_id, _ in self._leases()]",
    ),
    Change(
        "a terminated message is released instead of buried",
        IN_FLIGHT,
        "        if message.termination_problem is not None:\n            self.pending_acks.queued.burials",
        "        if message.termination_problem is None:\n            self.pending_acks.queued.burials",
    ),
    Change(
        "leases are renewed every three leases",
        BACKGROUND,
        "self.next_renewal_s = now_s + lease_s / 3",
        "self.next_renewal_s = now_s + lease_s * 3",
    ),
    Change(
        "acks are forgotten when sending them fails",
        BACKGROUND,
        "acks.flush_failed()",
        "acks.flush_answered()",
    ),
    Change(
        "a worker does not report a death",
        ACKS,
        "yield verbs.release(leases, died=died, started=started)",
        "yield verbs.release(leases, died=False, started=started)",
    ),
    Change(
        "settles are forgotten when a fetch fails",
        ACKS,
        "            self._fetching.prepend_to(self.queued)\n",
        "",
    ),
    Change(
        "releases are forgotten when a flush fails",
        ACKS,
        "        later.releases.extendleft(reversed(self.releases))\n",
        "",
    ),
    Change(
        "a child starts a message whose lease is over",
        DELIVERY,
        "            if clock.now_s() >= self.deadline_s and not self.lanes.store.holds(self.id, self.fence):\n",
        "            if False:\n",
    ),
    Change(
        "an old fence passes the check",
        DELIVERY,
        "        if not self.journal.retry_until_done(lambda: self.lanes.store.holds(self.id, self.fence)):\n",
        "        if False:\n",
    ),
    Change(
        "the acknowledgement of a refused run settles its message",
        "packages/celery-lanes/celery_lanes/worker/task.py",
        "            delivery.end_listening()\n            delivery.release_if_refused()\n",
        "            delivery.end_listening()\n",
    ),
    Change(
        "a run without its lease has a result",
        "packages/celery-lanes/celery_lanes/worker/task.py",
        "        if delivery.is_without_lease:\n            raise Ignore",
        "        if False:\n            raise Ignore",
    ),
    Change(
        "an error of a run without its lease is its result",
        "packages/celery-lanes/celery_lanes/worker/task.py",
        "            if not delivery.is_without_lease:\n",
        "            if True:\n",
    ),
    Change(
        "what a run has left is settled with it, although Redis has refused that",
        "packages/celery-lanes/celery_lanes/worker/arrivals.py",
        "                if left is Outcome.LOST:\n",
        "                if False:\n",
    ),
    Change(
        "a commit reports success whatever Redis answers",
        CLIENT,
        "return Outcome(min(code, 1))",
        "return Outcome(1)",
    ),
    Change(
        "a rerun gets what was taken too early",
        f"{PYTHON}/worker/arrivals.py",
        "return bool(self._taken) and self._taken[0][0] <= place",
        "return bool(self._taken)",
    ),
    Change(
        "what a rerun does not get to is lost",
        f"{PYTHON}/worker/arrivals.py",
        "            if self._taken:\n                left = self._ask(",
        "            if not self._taken:\n                left = self._ask(",
    ),
    Change(
        "a large commit stops after its first portion",
        CLIENT,
        "while code == verbs.UNFINISHED and",
        "while code != verbs.UNFINISHED and",
    ),
    Change(
        "a released run makes further calls",
        DELIVERY,
        "        if self._journal is not None:\n            self._journal.mark_lost()\n",
        "",
    ),
    Change(
        "a call is made although Redis has refused its begin",
        JOURNAL,
        "        if begun.noted is Noted.LOST:\n            self.mark_refused()\n        elif",
        "        if",
    ),
    Change(
        "a run without a lease is sure of it",
        JOURNAL,
        "return not self.is_lost and clock.now_s() < self._sure_until_s",
        "return not self.is_lost",
    ),
    Change(
        "calls are numbered from 1 again",
        JOURNAL,
        "self._numbers.setdefault(series, count(1))",
        "self._numbers.get(series, count(1))",
    ),
    Change(
        "a message is settled before its task ends",
        REQUEST,
        "acks_late = reject_on_worker_lost = True",
        "acks_late = reject_on_worker_lost = False",
    ),
    Change(
        "a hard time limit is not counted as a death",
        REQUEST,
        "release(self._message.delivery_tag, died=True)",
        "release(self._message.delivery_tag)",
    ),
    Change(
        "a request runs although its message was released",
        REQUEST,
        "return bool(super().revoked()) or self._is_released()",
        "return bool(super().revoked())",
    ),
    Change(
        "a rate limit holds a lane",
        REQUEST,
        "        if envelope.LANE in request.request_dict:\n            state.task_reserved(request)",
        "        if envelope.LANE not in request.request_dict:\n            state.task_reserved(request)",
    ),
    Change(
        "a job that a dead child has begun is given to another child",
        f"{PYTHON}/worker/pools.py",
        "if (job._write_to or job._scheduled_for) not in children._pool:",
        "if True:",
    ),
    Change(
        "a job whose child exits before it begins waits twice",
        f"{PYTHON}/worker/pools.py",
        "            job._write_to = job._scheduled_for = None\n",
        "",
    ),
    Change(
        "workers run what is behind a message that has moved out",
        f"{PYTHON}/cli/departure.py",
        '        self.store.pause("queue", self.queue)\n',
        "",
    ),
    Change(
        "an entry of the outbox that could not be published is deleted",
        OUTBOX,
        "number, error)\n        return False",
        "number, error)\n        return True",
    ),
    Change(
        "an entry of the outbox is deleted before it is published",
        OUTBOX,
        "        for number, message in entries:\n",
        "        table.delete([number for number, _ in entries])\n        for number, message in entries:\n",
    ),
    Change(
        "two processes give entries of the outbox the same ids",
        OUTBOX,
        'f"outbox {uuid4().hex}"',
        '"outbox"',
    ),
    Change(
        "a copy of an entry of the outbox has another id",
        OUTBOX,
        '"headers": headers, "task_id"',
        '"task_id"',
    ),
    Change(
        "an entry of the outbox fails while Redis is away",
        OUTBOX,
        "error if isinstance(error, _OF_ENTRY) and not isinstance(error, OSError) else None",
        "error or raised",
    ),
    Change(
        "the outbox of SQLAlchemy publishes in any order",
        f"{PYTHON}/sqlalchemy.py",
        ".order_by(entries.id)",
        ".order_by(entries.id.desc())",
    ),
    Change(
        "the outbox of Django publishes in any order",
        f"{PYTHON}/django/outbox/models.py",
        '.order_by("id")',
        '.order_by("-id")',
    ),
)

CHANGES = (*IN_LUA, *IN_PYTHON)

#: Why a simulated run with the specification (`--conformance`) does not notice changes that tests do.
UNNOTICED = {
    "the specification has no modes": (
        "a message gets the mode of its second lane",
        "messages of a lane with the mode queue are collected",
    ),
    "the specification has no rates of appends": (
        "a dropped message counts in its rate",
        "a rate waits for a clock that was set back",
        "each message over its rate is marked",
        "a message over its rate ends a run",
        "a message makes the one before it due before its turn",
    ),
    "the simulation pauses no limit": (
        "a permit of a paused limit is given",
        "a resumed limit is not continued",
    ),
    "which of several lanes comes first is not specified": (
        "messages that are given back together are handed out in reverse",
        "the youngest gets the permit",
        "permits are given in any order of their limits",
        "a returned message goes to the end of its queue",
        "ready messages of a queue are in the opposite order",
    ),
    "the specification counts no failures, waiting messages, permits that repair finds, or room of a worker": (
        "a failure is not counted",
        "a park counts as a failure",
        "a settled message stays pending",
        "a buried message stays pending",
        "the permit of a message that does not run stays taken",
        "a turn hands out one message too many",
    ),
    "outcomes of calls and notes are not specified": (
        "a call that is in doubt is made again",
        "a recorded call is made again",
        "a note is not deleted",
        "a message has no note",
    ),
    "when a lease ends, a rate allows the next message, or a worker wakes is not specified": (
        "a lease is half as long",
        "a renewal is half as long",
        "the pace is counted from the end of a run",
        "a fence from the future is the time of a start",
        "an appended message does not wait for the rate",
        "the second of two rates is not kept",
        "no worker is woken",
    ),
    "a fence is the clock, which moves on between two leases of a run of the simulation": ("a fence does not grow",),
    "the simulation has no guard of a poller that is old": ("an append with an old guard adds",),
    "neither two runs of 3,000 steps nor the specification shows a difference": (
        "an unstoppable message is stopped",
        "a message joins a stopped group",
        "a stopped message that waits for a permit stays there",
        "a run takes what another queue has",
        "a run takes what was leased before",
        "a message that is taken is also the next run",
        "a take whose answer was lost takes another message",
        "what is given back goes behind the messages that follow",
        "what a replayed message gives back goes in front of it",
        "a message that was leased before is gathered",
        "a message that does not follow directly is gathered",
        "a message that is not leased is held",
        "a suspect runs beside others",
        "a message in another state is handed out",
        "a renewal reports kept leases as lost",
    ),
}
