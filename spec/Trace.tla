---------------------------------- MODULE Trace ---------------------------------
(* A recorded run as a behaviour of the specification. A call of a script is one    *)
(* event for each message that it handles. After the last one, the records and      *)
(* lanes of the server must be those of the specification, and no other may have    *)
(* changed. The first event that no step explains is where TLC ends.                *)
EXTENDS Groups, Timers, Limits, Integers

CONSTANTS
  Given,     \* the records and indexes before the first event
  Events,    \* each: what, message, fence, worker, and what it needs (events.py); isLast, and then what is there after the call
  Judges     \* FALSE: only shows what the specification does
VARIABLES at, before
trace == <<at, before>>
unused == <<due, asked, cancelled, fired, inHand, ofModel>>

Elapsed(m) == /\ overdue' = overdue \cup {m}
              /\ UNCHANGED <<records, lane, ready, leases, delayed, dead, seen, clock, history>>

Remember(m) == /\ seen' = seen \cup {m}
               /\ UNCHANGED <<records, indexes, clock, history>>

\* A call that is not specified: what the server has is taken as it is.
Adopt(e) ==
  LET named == {e.records[i][1] : i \in DOMAIN e.records}
      of(m) == e.records[CHOOSE i \in DOMAIN e.records : e.records[i][1] = m]
      keys == {e.lanes[i][1] : i \in DOMAIN e.lanes}
      index(set, n) == (set \ named) \cup {m \in named : of(m)[n]}
  IN /\ state' = [m \in Messages |-> IF m \in named THEN of(m)[2] ELSE state[m]]
     /\ fence' = [m \in Messages |-> IF m \in named THEN of(m)[3] ELSE fence[m]]
     /\ clock' = [m \in Messages |-> IF m \in named /\ of(m)[3] > clock[m] THEN of(m)[3] ELSE clock[m]]
     /\ died' = [m \in Messages |-> IF m \in named THEN of(m)[4] ELSE died[m]]
     /\ lane' = [k \in Keys |-> IF k \in keys THEN e.lanes[CHOOSE i \in DOMAIN e.lanes : e.lanes[i][1] = k][2] ELSE lane[k]]
     /\ ready' = index(ready, 5) /\ leases' = index(leases, 6)
     /\ delayed' = index(delayed, 7) /\ dead' = index(dead, 8)
     /\ overdue' = overdue \ named
     /\ LET field(old, n) == [m \in Messages |-> IF m \in named THEN of(m)[n] ELSE old[m]]
        IN /\ size' = field(size, 9) /\ open' = field(open, 10)
           /\ stopped' = field(stopped, 11) /\ shielded' = field(shielded, 12) /\ group' = field(group, 13)
     /\ ending' = [m \in Messages |-> ending[m] /\ shielded'[m]]
     /\ timers' = (timers \ {e.timers[i][1] : i \in DOMAIN e.timers}) \cup {e.timers[i][1] : i \in {i \in DOMAIN e.timers : e.timers[i][2]}}
     /\ UNCHANGED <<holder, seen, history>>

\* Messages that a pause, a rate or the time of a group keeps back now, or not any more. What that makes of those that are
\* first in their lanes is up to the specification.
KeepBack(e) ==
  /\ Move({m \in {e.kept[i][1] : i \in DOMAIN e.kept} : Moves(m)}) /\ UNCHANGED <<fields, timers>>

\* An append with a group: n joins the last message of all its lanes, or is the first one of a group.
AppendTo(e) ==
  LET n == e.message
      may(m) == MayJoin(n, m, e.group, e.most, e.interrupts)
  IN IF n \in seen THEN UNCHANGED <<redis, history, fields>>
     ELSE IF \E m \in Messages : may(m)
     THEN /\ Join(n, CHOOSE m \in Messages : may(m), e.interrupts)
          /\ seen' = seen \cup {n} /\ UNCHANGED history
     ELSE /\ Add(n) /\ group' = [group EXCEPT ![n] = e.group]
          /\ UNCHANGED <<history, size, open, stopped, shielded, ending>>

\* A held message enters as if it were appended now, without being remembered again.
Unhold(m) == state[m] = "held" /\ Enter(m, Joined(m)) /\ UNCHANGED <<seen, history>>
\* A message is held only while a lower number is missing, or held.
Hold(m, isAllowed) ==
  /\ isAllowed /\ m \notin seen /\ state[m] = "none"
  /\ state' = [state EXCEPT ![m] = "held"] /\ seen' = seen \cup {m}
  /\ UNCHANGED <<fence, holder, died, indexes, clock, history>>

\* Those of the core and of the dead letters, after which the fields follow.
CoreStep(e) ==
  LET m == e.message f == e.fence n == IF m = 0 THEN 0 ELSE handed[m]
  IN CASE e.what = "append"     -> e.isAllowed /\ Add(m) /\ UNCHANGED history
       [] e.what = "enter"      -> AddUnnumbered(m)
       [] e.what = "fire"       -> e.isAllowed /\ e.timer \in timers /\ AddUnnumbered(m)
       [] e.what = "lapse"      -> e.isAllowed /\ e.timer \in timers /\ UNCHANGED <<redis, history>>
       [] e.what = "hold"       -> Hold(m, e.isAllowed)
       [] e.what = "unhold"     -> e.isAllowed /\ Unhold(m)
       [] e.what = "malformed"  -> AddBuried(m)
       [] e.what = "unnumbered" -> AddBuriedUnnumbered(m)
       [] e.what = "lease"      -> e.isAllowed /\ heads[m] = "ready" /\ Lease(m, e.worker)
       [] e.what = "killer"     -> BuryKiller(m)
       [] e.what = "settle"     -> Settle(m, f, n)
       [] e.what = "release"    -> Return(m, f, n, "ready")
       [] e.what = "died"       -> ReleaseDied(m, f, n)
       [] e.what = "delay"      -> Return(m, f, n, "delayed")
       [] e.what = "bury"       -> Return(m, f, n, "buried")
       [] e.what = "renew"      -> Renew(m, f, n)
       [] e.what = "elapse"     -> Elapsed(m)
       [] e.what = "expire"     -> Expire(m)
       [] e.what = "due"        -> Due(m)
       [] e.what = "reconcile"  -> Reconcile(m, e.worker)
       [] e.what = "drop"       -> Drop(m)
       [] e.what = "remember"   -> Remember(m)
       [] e.what \in {"nothing", "pause", "resume"} -> UNCHANGED <<redis, history>>

Timed(e) == CASE e.what \in {"fire", "lapse"} -> timers' = timers \ {e.timer}
              [] OTHER -> timers' = timers

\* Those that change the fields or the timers themselves.
Others == {"adopt", "keep", "group", "stop", "shield", "unshield", "take", "gather", "interrupt", "replay", "set", "cancel"}
OtherStep(e) ==
  LET m == e.message f == e.fence others == <<seen, history, died, timers>>
  IN CASE e.what = "adopt"    -> Adopt(e)
       [] e.what = "keep"     -> KeepBack(e)
       [] e.what = "group"    -> e.isAllowed /\ AppendTo(e) /\ UNCHANGED timers
       [] e.what = "stop"     -> (IF lane[e.key] = <<>> THEN UNCHANGED <<records, indexes, clock, fields>>
                                  ELSE IF Head(lane[e.key]) \in e.unstoppable THEN UNCHANGED <<records, indexes, clock, fields>>
                                  ELSE Stop(Head(lane[e.key]))) /\ UNCHANGED others
       [] e.what = "shield"   -> Shield(m, f) /\ UNCHANGED others
       [] e.what = "unshield" -> Unshield(m, f, e.most, e.interrupts) /\ UNCHANGED others
       [] e.what = "take"     -> Take(m, f, FALSE) /\ UNCHANGED others
       [] e.what = "gather"   -> Take(m, f, TRUE) /\ UNCHANGED others
       [] e.what = "interrupt" -> Interrupt(m, f) /\ UNCHANGED others
       [] e.what = "replay"   -> Replay(m) /\ stopped' = [stopped EXCEPT ![m] = FALSE]
                                 /\ UNCHANGED <<group, size, open, shielded, ending, timers>>
       [] e.what = "set"      -> timers' = timers \cup {e.timer} /\ UNCHANGED <<redis, history, fields>>
       [] e.what = "cancel"   -> timers' = timers \ {e.timer} /\ UNCHANGED <<redis, history, fields>>

\* The message of an event, and those that it may make the first of a lane.
Concerned(e) ==
  IF e.message = 0 THEN {}
  ELSE {e.message} \cup {Head(lane'[k]) : k \in {k \in KeysOf[e.message] : lane'[k] # <<>>}}
Step(e) ==
  /\ heads' = IF e.kept = <<>> THEN heads
              ELSE [m \in Messages |-> IF \E i \in DOMAIN e.kept : e.kept[i][1] = m
                                       THEN e.kept[CHOOSE i \in DOMAIN e.kept : e.kept[i][1] = m][2] ELSE heads[m]]
  /\ IF e.what \in Others THEN OtherStep(e) ELSE CoreStep(e) /\ ResetAmong(Concerned(e), {}) /\ Timed(e)

\* Each of e.limits is <<limit, its messages by age>>, in the order of limits; each message is <<message, how many may run,
\* whether it has a permit>>. A limit gives its free permits to those that wait in it, the oldest first.
Limited == {m \in Messages : LimitsOf[m] # {}}
NeedsPermits(m) == state'[m] \in {"ready", "leased"} /\ ~stopped'[m]
RECURSIVE GiveOf(_, _, _)
GiveOf(l, line, p) ==
  IF line = <<>> THEN p
  ELSE LET m == Head(line)[1] IN
       IF ~NeedsPermits(m) \/ l \notin WaitsIn(m, p) THEN GiveOf(l, Tail(line), p)
       ELSE IF Cardinality(p[l]) < Head(line)[2] THEN GiveOf(l, Tail(line), [p EXCEPT ![l] = @ \cup {m}]) ELSE p
RECURSIVE GiveAll(_, _)
GiveAll(lines, p) == IF lines = <<>> THEN p ELSE GiveAll(Tail(lines), GiveOf(Head(lines)[1], Head(lines)[2], p))

InLine(e, i, hasPermit) == {e.limits[i][2][j][1] : j \in {j \in DOMAIN e.limits[i][2] : e.limits[i][2][j][3] = hasPermit}}
\* After a call that is not specified, the permits are taken as they are.
Permitted(e) ==
  IF e.what # "adopt" THEN GiveAll(e.limits, Kept)
  ELSE [l \in Limits |-> IF \E i \in DOMAIN e.limits : e.limits[i][1] = l
                         THEN InLine(e, CHOOSE i \in DOMAIN e.limits : e.limits[i][1] = l, TRUE) ELSE Kept[l]]
\* What runs has its permits; those of the server are the same, and what lacks one is gated there.
LimitsAgree(e) ==
  /\ \A i \in DOMAIN e.limits : LET l == e.limits[i][1] IN
       /\ InLine(e, i, TRUE) = permits'[l]
       /\ InLine(e, i, FALSE) = {m \in Limited : state'[m] = "ready" /\ NeedsPermits(m) /\ l \in WaitsIn(m, permits')}
  /\ \A l \in Limits : permits'[l] # permits[l] => \E i \in DOMAIN e.limits : e.limits[i][1] = l
  /\ \A m \in Limited : state'[m] = "leased" /\ NeedsPermits(m) => IsAdmitted(m, permits')
  /\ \A i \in DOMAIN e.records : LET m == e.records[i][1] IN
       (m \in e.gated) = (state'[m] = "ready" /\ NeedsPermits(m) /\ ~IsAdmitted(m, permits'))

\* f without the values of the listed. TLC compares two such functions faster than their values, one by one.
RECURSIVE Masked(_, _, _)
Masked(f, listed, n) == IF n = 0 THEN f ELSE Masked([f EXCEPT ![listed[n][1]] = 0], listed, n - 1)
Same(f, g, listed) == Masked(f, listed, Len(listed)) = Masked(g, listed, Len(listed))
\* Each of e.records is <<message, state, fence, died, is in a ready list, in leases, in delayed, in dead, size, open,
\* stopped, shielded, group>>.
Agrees(e) ==
  /\ \A i \in DOMAIN e.records : LET r == e.records[i] IN
       r = <<r[1], state'[r[1]], fence'[r[1]], died'[r[1]], r[1] \in ready', r[1] \in leases', r[1] \in delayed', r[1] \in dead',
             size'[r[1]], open'[r[1]], stopped'[r[1]], shielded'[r[1]], group'[r[1]]>>
  /\ \A i \in DOMAIN e.timers : (e.timers[i][1] \in timers') = e.timers[i][2]
  /\ \A i \in DOMAIN e.lanes : lane'[e.lanes[i][1]] = e.lanes[i][2]
  /\ Same(state', before.state, e.records)
  /\ \A t \in (timers' \ before.timers) \cup (before.timers \ timers') : \E i \in DOMAIN e.timers : e.timers[i][1] = t
  /\ Same(lane', before.lane, e.lanes)

TraceInit ==
  /\ state = Given.state /\ fence = Given.fence /\ holder = Given.holder /\ died = Given.died /\ clock = Given.fence
  /\ lane = Given.lane /\ seen = Given.seen /\ overdue = None
  /\ ready = Given.ready /\ leases = Given.leases /\ delayed = Given.delayed /\ dead = Given.dead
  /\ confirmed = None /\ condition = <<>> /\ runs = <<>> /\ calls = None /\ budget = <<>>
  /\ handed = [m \in Messages |-> 0] /\ settlements = handed /\ completed = None /\ zombies = None
  /\ replays = 0 /\ dropped = None /\ heads = Given.heads /\ timers = Given.timers
  /\ group = Given.group /\ size = Given.size /\ open = Given.open /\ stopped = Given.stopped
  /\ shielded = Given.shielded /\ ending = [m \in Messages |-> stopped[m] /\ shielded[m]]
  /\ due = None /\ asked = None /\ cancelled = None /\ fired = None /\ inHand = None
  /\ members = None /\ had = None /\ unrun = None /\ stops = 0
  /\ permits = Given.permits
  /\ at = 1 /\ before = [state |-> Given.state, lane |-> Given.lane, timers |-> Given.timers]

TraceNext ==
  /\ at <= Len(Events)
  /\ LET e == Events[at] IN
       /\ Step(e)
       /\ IF e.isLast THEN permits' = Permitted(e) ELSE UNCHANGED permits
       /\ Judges /\ e.isLast => Agrees(e) /\ LimitsAgree(e)
       /\ before' = IF e.isLast THEN [state |-> state', lane |-> lane', timers |-> timers'] ELSE before
  /\ at' = at + 1
  /\ UNCHANGED <<outside, letters, unused>>
TraceSpec == TraceInit /\ [][TraceNext]_<<coreVars, letters, fields, timers, permits, trace>>

\* What a run starts with is a state of the specification; its steps keep these invariants.
IsSpecified == \A m \in Messages : state[m] \in Queued \cup {"none", "buried", "held"}
StartIsSound == at = 1 /\ IsSpecified => OneState /\ HeadActive /\ Exclusion
NotShown == at <= Len(Events) \/ Judges
=================================================================================
