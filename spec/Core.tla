---------------------------------- MODULE Core ----------------------------------
(* The protocol of celery_lanes: how messages wait, are leased, and end.           *)
(* docs/lanes.md has the words. A script of Redis that handles several messages    *)
(* is here several steps, one for each message: what holds for any order of these  *)
(* steps holds for the script. Refinements (Gaps, Groups, ...) extend this module. *)
(* The guarantees are at the end; G2 to G7 are those of the design.                *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Messages, Keys, Workers,
  KeysOf,      \* message -> the set of its keys
  Nobody,      \* not a worker
  MaxDeaths,   \* a message is buried when its worker has died this many times
  \* How often each fault happens in a behaviour, at most. `Returns`: releases, retries and burials.
  Crashes, Freezes, Losses, Repeats, Returns,
  Without      \* guards that are left out; a test does it, to see an invariant violated

Guard(name, condition) == name \in Without \/ condition

VARIABLES
  \* In Redis: the record of each message, and the indexes.
  state,       \* "none" (no record), "waiting", "ready", "leased", "delayed", or "buried"
  fence,       \* 0: no fence
  holder, died,
  lane,        \* key -> messages, oldest first
  ready, leases, delayed, dead, \* ids in the ready lists, and in three sorted sets
  overdue,     \* the leases whose time is over
  heads,       \* what a message becomes when it is first in all its lanes: "ready", unless a refinement keeps it back
  seen,        \* messages that a second append drops
  clock,       \* message -> the highest fence it ever had: Redis takes fences from its clock
  \* Outside.
  confirmed,   \* messages of which the source knows that they are stored
  condition,   \* worker -> "up", "frozen" or "dead"
  runs,        \* worker -> the runs that it believes to hold: [message, fence, number]
  calls,       \* calls to Redis that may still arrive, also after the death of their worker
  budget,      \* how often each fault may still happen
  \* History, which no script and no worker can read.
  handed,      \* message -> how often it was handed out
  completed,   \* messages whose handler has ended well
  settlements, \* message -> how often it was settled
  zombies      \* messages that a run has changed whose lease was over

records == <<state, fence, holder, died>>
indexes == <<lane, ready, leases, delayed, dead, overdue>>
redis   == <<records, indexes, seen, clock>>
outside == <<confirmed, condition, runs, calls, budget>>
history == <<handed, completed, settlements, zombies>>
vars    == <<redis, outside, history>>

None == {}
Queued == {"waiting", "ready", "leased", "delayed", "collecting"}

---------------------------------------------------------------------------------
(* What the scripts share (lua/lib).                                              *)

FirstIn(lanes, m, k) == lanes[k] # <<>> /\ Head(lanes[k]) = m
IsFirst(lanes, m) ==
  IF "first in all" \in Without
  THEN KeysOf[m] = {} \/ \E k \in KeysOf[m] : FirstIn(lanes, m, k)
  ELSE \A k \in KeysOf[m] : FirstIn(lanes, m, k)

Joined(m) == [k \in Keys |-> IF k \in KeysOf[m] THEN Append(lane[k], m) ELSE lane[k]]
Left(m) == [k \in Keys |-> IF k \in KeysOf[m] THEN SelectSeq(lane[k], LAMBDA x : x # m) ELSE lane[k]]

\* The messages that become ready because m has left its lanes (ending.lua, advance_lane).
Following(m, lanes) ==
  IF "advance" \in Without THEN None
  ELSE LET firsts == {Head(lanes[k]) : k \in {k \in KeysOf[m] : lanes[k] # <<>>}}
       IN {x \in firsts : x # m /\ state[x] = "waiting" /\ IsFirst(lanes, x)}

\* m gets a state, a fence and a holder; `lanes` are all lanes after it.
Becomes(m, to, itsFence, worker, lanes) ==
  \E moved \in {{m} \cup IF lanes = lane THEN None ELSE Following(m, lanes)} : \* TLC evaluates it once, not for each x
  LET becomes(x) == IF x # m \/ to = "ready" THEN heads'[x] ELSE to
      index(set, name) == (set \ moved) \cup {x \in moved : becomes(x) = name}
  IN /\ state' = [x \in Messages |-> IF x \in moved THEN becomes(x) ELSE state[x]]
     /\ fence' = [fence EXCEPT ![m] = itsFence]
     /\ clock' = [clock EXCEPT ![m] = IF itsFence > @ THEN itsFence ELSE @]
     /\ holder' = [holder EXCEPT ![m] = worker]
     /\ lane' = lanes
     /\ ready' = index(ready, "ready")
     /\ leases' = IF "lease removed" \in Without /\ to # "leased" THEN leases ELSE index(leases, "leased")
     /\ delayed' = index(delayed, "delayed")
     /\ dead' = index(dead, "buried")
     /\ overdue' = overdue \ {m}

\* What is kept back changes (heads'): a message that is first in all its lanes and does not run changes with it.
Moves(m) == state[m] \in {"ready", "waiting", "collecting"} /\ heads'[m] # heads[m]
            /\ \A k \in KeysOf[m] : FirstIn(lane, m, k)
Move(set) ==
  LET index(old, name) == (old \ set) \cup {m \in set : heads'[m] = name}
  IN /\ state' = [m \in Messages |-> IF m \in set THEN heads'[m] ELSE state[m]]
     /\ ready' = index(ready, "ready") /\ delayed' = index(delayed, "delayed")
     /\ UNCHANGED <<fence, holder, died, lane, leases, dead, overdue, seen, clock, outside, history>>

NewFence(m) == clock[m] + 1

\* The message is taken from its holder, who is refused from here on (ending.lua, take_back).
TakenBack(m, to, lanes) ==
  Becomes(m, to, IF "fence of a take-back" \in Without THEN fence[m] ELSE NewFence(m), Nobody, lanes)

\* The check of every verb that a run calls (prelude.lua, holds).
Holds(m, f) == Guard("state", state[m] = "leased") /\ Guard("fence", fence[m] = f)

\* For the history: a call of this run has changed its message.
Changes(m, number) ==
  zombies' = IF state[m] = "leased" /\ handed[m] = number THEN zombies ELSE zombies \cup {m}

---------------------------------------------------------------------------------
(* The scripts, for one message.                                                  *)

\* append.lua. With the guard "at once" left out, a message joins its lanes one after the other.
Enter(m, lanes) ==
  /\ Becomes(m, IF IsFirst(lanes, m) THEN "ready" ELSE "waiting", fence[m], Nobody, lanes)
  /\ UNCHANGED died

Add(m) ==
  IF Guard("dedup", m \notin seen) /\ Guard("exists", state[m] = "none")
  THEN /\ Enter(m, Joined(m))
       /\ seen' = seen \cup {m}
  ELSE UNCHANGED redis

JoinOne(m) == \E k \in {k \in KeysOf[m] : \A i \in DOMAIN lane[k] : lane[k][i] # m} :
  LET lanes == [lane EXCEPT ![k] = Append(@, m)]
      isLast == \A other \in KeysOf[m] : \E i \in DOMAIN lanes[other] : lanes[other][i] = m
  IN /\ state[m] = "none"
     /\ IF isLast THEN Enter(m, lanes) /\ seen' = seen \cup {m}
        ELSE lane' = lanes /\ UNCHANGED <<records, ready, leases, delayed, dead, overdue, seen, clock>>

\* turn.lua leases a ready message, or buries it if it has killed too many workers.
Lease(m, w) ==
  /\ m \in ready /\ state[m] = "ready"
  /\ Guard("deaths", died[m] < MaxDeaths)
  /\ Becomes(m, "leased", IF "fence of a lease" \in Without THEN fence[m] ELSE NewFence(m), w, lane)
  /\ handed' = [handed EXCEPT ![m] = @ + 1]
  /\ UNCHANGED <<died, seen, completed, settlements, zombies>>

BuryKiller(m) ==
  /\ m \in ready /\ state[m] = "ready" /\ died[m] >= MaxDeaths
  /\ TakenBack(m, "buried", Left(m))
  /\ UNCHANGED <<died, seen, history>>

\* turn.lua and commit.lua: the message is settled. Its record is deleted.
Settle(m, f, number) ==
  IF Holds(m, f)
  THEN /\ Becomes(m, "none", 0, Nobody, Left(m))
       /\ died' = [died EXCEPT ![m] = 0]
       /\ settlements' = [settlements EXCEPT ![m] = @ + 1]
       /\ Changes(m, number)
       /\ UNCHANGED <<seen, handed, completed>>
  ELSE UNCHANGED <<redis, history>>

\* A verb that takes the message back: release.lua, retry.lua, park.lua, bury.lua.
Return(m, f, number, to) ==
  IF Holds(m, f)
  THEN /\ TakenBack(m, to, IF to = "buried" THEN Left(m) ELSE lane)
       /\ Changes(m, number)
       /\ UNCHANGED <<died, seen, handed, completed, settlements>>
  ELSE UNCHANGED <<redis, history>>

\* release.lua after the death of the process that ran it.
ReleaseDied(m, f, number) ==
  IF Holds(m, f)
  THEN /\ TakenBack(m, "ready", lane)
       /\ died' = [died EXCEPT ![m] = @ + 1]
       /\ Changes(m, number)
       /\ UNCHANGED <<seen, handed, completed, settlements>>
  ELSE UNCHANGED <<redis, history>>

\* renew.lua, and begin.lua, which each effect of a run passes: both extend the lease.
Renew(m, f, number) ==
  IF Holds(m, f)
  THEN /\ overdue' = overdue \ {m}
       /\ Changes(m, number)
       /\ UNCHANGED <<records, lane, ready, leases, delayed, dead, seen, clock, handed, completed, settlements>>
  ELSE UNCHANGED <<redis, history>>

\* sweep.lua: a lease that is over, and a retry that is due.
Expire(m) ==
  /\ m \in leases /\ state[m] = "leased" /\ Guard("lease is over", m \in overdue)
  /\ TakenBack(m, "ready", lane)
  /\ died' = [died EXCEPT ![m] = @ + 1]
  /\ UNCHANGED <<seen, history>>

Due(m) ==
  /\ m \in delayed /\ state[m] = "delayed"
  /\ TakenBack(m, "ready", lane)
  /\ UNCHANGED <<died, seen, history>>

\* reconcile.lua: w has a lease that it does not know, because the reply was lost.
Reconcile(m, w) ==
  /\ m \in leases /\ state[m] = "leased" /\ holder[m] = w
  /\ TakenBack(m, "ready", lane)
  /\ UNCHANGED <<died, seen, history>>

---------------------------------------------------------------------------------
(* The source, and the workers.                                                   *)

Costs(fault) == budget[fault] > 0 /\ budget' = [budget EXCEPT ![fault] = @ - 1]

\* The source appends in its order (messages are numbers), until it has heard of each that it is stored.
AppendNext ==
  /\ IF "at once" \in Without THEN \E m \in Messages \ seen : JoinOne(m)
     ELSE \E m \in Messages \ seen : (\A earlier \in Messages : earlier < m => earlier \in seen) /\ Add(m)
  /\ UNCHANGED <<outside, history>>
\* A reply was lost, or an append arrives late: the message comes again.
AppendAgain ==
  /\ \E m \in seen : Add(m)
  /\ Costs("repeats")
  /\ UNCHANGED <<confirmed, condition, runs, calls, history>>
Confirm ==
  /\ \E m \in Messages \ confirmed :
       Guard("confirm after append", m \in seen) /\ confirmed' = confirmed \cup {m}
  /\ UNCHANGED <<redis, condition, runs, calls, budget, history>>

\* With "lost", the worker never learns of the lease.
Fetch(w) == \E m \in ready :
  /\ condition[w] = "up"
  /\ Lease(m, w)
  /\ \/ /\ runs' = [runs EXCEPT ![w] = @ \cup {[message |-> m, fence |-> fence'[m], number |-> handed'[m]]}]
        /\ UNCHANGED budget
     \/ Costs("losses") /\ UNCHANGED runs
  /\ UNCHANGED <<confirmed, condition, calls>>
FetchKiller == (\E m \in ready : BuryKiller(m)) /\ UNCHANGED outside

\* A run ends: the worker sends the call. The handler of a run that is to be settled has ended well.
Send(w, r, verb) ==
  /\ calls' = calls \cup {[run |-> r, verb |-> verb, worker |-> w]}
  /\ runs' = [runs EXCEPT ![w] = @ \ {r}]
  /\ UNCHANGED <<redis, confirmed, condition, handed, settlements, zombies>>
Complete(w) == \E r \in runs[w] :
  /\ condition[w] = "up"
  /\ Send(w, r, "settle")
  /\ completed' = IF "settle after the run" \in Without THEN completed ELSE completed \cup {r.message}
  /\ UNCHANGED budget
GiveBack(w) == \E r \in runs[w], verb \in {"release", "retry", "bury", "died"} :
  /\ condition[w] = "up"
  /\ Send(w, r, verb)
  /\ Costs("returns")
  /\ UNCHANGED completed

Perform(c) ==
  LET m == c.run.message f == c.run.fence n == c.run.number
  IN CASE c.verb = "settle"  -> Settle(m, f, n)
       [] c.verb = "release" -> Return(m, f, n, "ready")
       [] c.verb = "retry"   -> Return(m, f, n, "delayed")
       [] c.verb = "bury"    -> Return(m, f, n, "buried")
       [] c.verb = "died"    -> ReleaseDied(m, f, n)
\* The reply may be lost; then the call arrives once more.
Arrive == \E c \in calls :
  /\ Perform(c)
  /\ \/ calls' = calls \ {c} /\ UNCHANGED budget
     \/ Costs("losses") /\ UNCHANGED calls
  /\ UNCHANGED <<confirmed, condition, runs>>

\* A renewal, or a call of the handler: a run whose lease is lost is given up.
KeepAlive(w) == \E r \in runs[w] :
  /\ condition[w] = "up"
  /\ Renew(r.message, r.fence, r.number)
  /\ runs' = IF Holds(r.message, r.fence) THEN runs ELSE [runs EXCEPT ![w] = @ \ {r}]
  /\ UNCHANGED <<confirmed, condition, calls, budget>>

Known(w) == {r.message : r \in runs[w]} \cup {c.run.message : c \in {c \in calls : c.worker = w}}
FindUnknown(w) == \E m \in leases \ Known(w) :
  condition[w] = "up" /\ Reconcile(m, w) /\ UNCHANGED outside

\* A lease ends only if its holder does not renew it.
Elapse == \E m \in leases \ overdue :
  /\ IF holder[m] = Nobody THEN TRUE ELSE condition[holder[m]] # "up" \/ m \notin Known(holder[m])
  /\ overdue' = overdue \cup {m}
  /\ UNCHANGED <<records, lane, ready, leases, delayed, dead, seen, clock, outside, history>>
Sweep == (\E m \in Messages : Expire(m) \/ Due(m)) /\ UNCHANGED outside

\* Calls of a dead worker may still arrive. A new worker has another name: nobody has that of the old one.
Crash(w) ==
  /\ condition[w] # "dead" /\ Costs("crashes")
  /\ condition' = [condition EXCEPT ![w] = "dead"]
  /\ runs' = [runs EXCEPT ![w] = None]
  /\ holder' = [m \in Messages |-> IF holder[m] = w THEN Nobody ELSE holder[m]]
  /\ UNCHANGED <<state, fence, died, indexes, seen, clock, confirmed, calls, history>>
Freeze(w) ==
  /\ condition[w] = "up" /\ Costs("freezes")
  /\ condition' = [condition EXCEPT ![w] = "frozen"]
  /\ UNCHANGED <<redis, confirmed, runs, calls, history>>
Start(w) ==
  /\ condition[w] # "up"
  /\ condition' = [condition EXCEPT ![w] = "up"]
  /\ UNCHANGED <<redis, confirmed, runs, calls, budget, history>>

---------------------------------------------------------------------------------
Init ==
  /\ state = [m \in Messages |-> "none"] /\ holder = [m \in Messages |-> Nobody]
  /\ fence = [m \in Messages |-> 0] /\ died = fence /\ clock = fence
  /\ lane = [k \in Keys |-> <<>>]
  /\ ready = None /\ leases = None /\ delayed = None /\ dead = None /\ overdue = None /\ seen = None
  /\ confirmed = None /\ condition = [w \in Workers |-> "up"] /\ runs = [w \in Workers |-> None] /\ calls = None
  /\ budget = [crashes |-> Crashes, freezes |-> Freezes, losses |-> Losses, repeats |-> Repeats, returns |-> Returns]
  /\ handed = fence /\ settlements = fence /\ completed = None /\ zombies = None

\* What happens in the end, if nothing fails for long enough.
Progress ==
  \/ AppendNext \/ Confirm \/ FetchKiller \/ Arrive \/ Elapse \/ Sweep
  \/ \E w \in Workers : Fetch(w) \/ Complete(w) \/ KeepAlive(w) \/ FindUnknown(w) \/ Start(w)
Faults == AppendAgain \/ \E w \in Workers : GiveBack(w) \/ Crash(w) \/ Freeze(w)
Next == Progress \/ Faults

\* Without a refinement, nothing keeps a message back.
CoreInit == Init /\ heads = [m \in Messages |-> "ready"]
CoreNext == UNCHANGED heads /\ Next
coreVars == <<vars, heads>>

Spec == CoreInit /\ [][CoreNext]_coreVars
FairSpec == Spec /\ WF_coreVars(UNCHANGED heads /\ Progress)

---------------------------------------------------------------------------------
(* What is promised.                                                              *)

Behind(k) == IF lane[k] = <<>> THEN None ELSE {lane[k][i] : i \in 2..Len(lane[k])}

\* G2: of the messages that share a key, only the first one is handed out, and messages are numbered in their order.
Order == \A k \in Keys :
  /\ \A m \in Behind(k) : state[m] # "leased"
  /\ \A i, j \in DOMAIN lane[k] : i < j => lane[k][i] < lane[k][j]
\* G2: and what is in a lane is there once.
Exclusion == LET running == {m \in Messages : state[m] = "leased"} IN
  \A m, n \in running : m # n => KeysOf[m] \cap KeysOf[n] = {}
\* G3: in any set of messages that wait, the first of one lane is not behind another one for ever.
NoDeadlock == (\E m \in Messages : state[m] \in Queued) => \E m \in Messages : state[m] \in Queued \ {"waiting"}
\* G5: a message is settled once.
Once == \A m \in Messages : settlements[m] <= 1
\* G6: a worker past its lease changes nothing.
NoZombie == zombies = None
\* G7: a message that kills its workers is buried.
Poison == \A m \in Messages : died[m] <= MaxDeaths
\* G1: a message of which the source knows that it is stored is in Redis until its handler has ended well.
NothingLost == \A m \in confirmed : state[m] = "none" => m \in completed
\* Each message has one state: its record and the indexes agree.
OneState == LET inLane == [k \in Keys |-> {lane[k][i] : i \in DOMAIN lane[k]}] IN
  /\ \A m \in Messages :
       /\ (m \in ready) = (state[m] = "ready") /\ (m \in leases) = (state[m] = "leased")
       /\ (m \in delayed) = (state[m] = "delayed") /\ (m \in dead) = (state[m] = "buried")
       /\ state[m] \in Queued => \A k \in KeysOf[m] : m \in inLane[k]
  /\ \A k \in Keys : \A m \in inLane[k] : k \in KeysOf[m] /\ state[m] \in Queued
\* The first message of all its lanes is ready, leased or delayed, unless it is kept back; any other one waits.
HeadActive == \A m \in Messages : state[m] \in Queued =>
  IF \A k \in KeysOf[m] : FirstIn(lane, m, k) THEN state[m] # "waiting" \/ heads[m] = "waiting" ELSE state[m] = "waiting"
\* A fence grows each time a message is leased or taken back.
FencesGrow == [][\A m \in Messages : state'[m] # state[m] /\ "leased" \in {state[m], state'[m]} /\ state'[m] # "none"
                   => fence'[m] > fence[m]]_vars
\* Only a lease that is over ends without a call of its holder.
LeasesHold == [][\A m \in leases \ overdue : state'[m] = "ready" /\ died'[m] > died[m]
                   => \E c \in calls : c.verb = "died" /\ c.run.message = m]_vars
\* Liveness: what waits is settled or buried.
AllEnd == <>[](\A m \in Messages : m \in confirmed /\ state[m] \in {"none", "buried"})
=================================================================================
