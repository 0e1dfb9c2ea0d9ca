---------------------------------- MODULE Trace ---------------------------------
(* A recorded run as a behaviour of the specification. A call of a script is one    *)
(* event for each message that it handles. After the last one, the records and      *)
(* lanes of the server must be those of the specification, and no other may have    *)
(* changed. The first event that no step explains is where TLC ends.                *)
EXTENDS Letters, Integers

CONSTANTS
  Given,     \* the records and indexes before the first event
  Events,    \* each: what, message, fence, worker, isLast, records and lanes after the call
  Judges     \* FALSE: only shows what the specification does
VARIABLES at, before
trace == <<at, before>>

\* A message that a timer, a schedule or a successor puts into its lanes, or one without `once`.
AddUnnumbered(m) == IF state[m] = "none" THEN Enter(m, Joined(m)) /\ UNCHANGED <<seen, history>>
                    ELSE UNCHANGED <<redis, history>>
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
     /\ UNCHANGED <<holder, seen, history>>

Step(e) ==
  LET m == e.message f == e.fence n == IF m = 0 THEN 0 ELSE handed[m]
  IN CASE e.what = "append"     -> Add(m) /\ UNCHANGED history
       [] e.what = "enter"      -> AddUnnumbered(m)
       [] e.what = "malformed"  -> AddBuried(m)
       [] e.what = "lease"      -> Lease(m, e.worker)
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
       [] e.what = "replay"     -> Replay(m)
       [] e.what = "drop"       -> Drop(m)
       [] e.what = "remember"   -> Remember(m)
       [] e.what = "adopt"      -> Adopt(e)
       [] e.what = "nothing"    -> UNCHANGED <<redis, history>>

\* Each of e.records is <<message, state, fence, died, is in a ready list, in leases, in delayed, in dead>>.
Agrees(e) ==
  LET named == {e.records[i][1] : i \in DOMAIN e.records}
      keys == {e.lanes[i][1] : i \in DOMAIN e.lanes}
  IN /\ \A i \in DOMAIN e.records : LET r == e.records[i] IN
          r = <<r[1], state'[r[1]], fence'[r[1]], died'[r[1]], r[1] \in ready', r[1] \in leases', r[1] \in delayed', r[1] \in dead'>>
     /\ \A i \in DOMAIN e.lanes : lane'[e.lanes[i][1]] = e.lanes[i][2]
     /\ \A m \in Messages \ named : state'[m] = before.state[m]
     /\ \A k \in Keys \ keys : lane'[k] = before.lane[k]

TraceInit ==
  /\ state = Given.state /\ fence = Given.fence /\ holder = Given.holder /\ died = Given.died /\ clock = Given.fence
  /\ lane = Given.lane /\ seen = Given.seen /\ overdue = None
  /\ ready = Given.ready /\ leases = Given.leases /\ delayed = Given.delayed /\ dead = Given.dead
  /\ confirmed = None /\ condition = <<>> /\ runs = <<>> /\ calls = None /\ budget = <<>>
  /\ handed = [m \in Messages |-> 0] /\ settlements = handed /\ completed = None /\ zombies = None
  /\ replays = 0 /\ dropped = None
  /\ at = 1 /\ before = [state |-> Given.state, lane |-> Given.lane]

TraceNext ==
  /\ at <= Len(Events)
  /\ LET e == Events[at] IN
       /\ Step(e)
       /\ Judges /\ e.isLast => Agrees(e)
       /\ before' = IF e.isLast THEN [state |-> state', lane |-> lane'] ELSE before
  /\ at' = at + 1
  /\ UNCHANGED <<outside, letters>>
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, letters, trace>>

\* What a run starts with is a state of the specification; its steps keep these invariants.
IsSpecified == \A m \in Messages : state[m] \in Queued \cup {"none", "buried"}
StartIsSound == at = 1 /\ IsSpecified => OneState /\ HeadActive /\ Exclusion
NotShown == at <= Len(Events) \/ Judges
=================================================================================
