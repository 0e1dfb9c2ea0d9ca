---------------------------------- MODULE Groups --------------------------------
(* Groups, interrupts and stops. A message that joins a group has no record: it     *)
(* belongs to that of the first one, with one run. A group is collected for a while; *)
(* a message that arrives during its run interrupts it, waits, or is taken by it. A  *)
(* stop ends the run of the first message of each lane, unless it is shielded.      *)
EXTENDS Letters

VARIABLES
  \* Fields of a record.
  group,     \* 0: none
  size,      \* how many messages belong to it
  open,      \* further ones may join, although it ran before
  stopped, shielded,
  ending     \* it was stopped during its shield, which then ends its run
fields == <<group, size, open, stopped, shielded, ending>>

\* f with the value v for each of a set.
RECURSIVE Put(_, _, _)
Put(f, set, v) == IF set = {} THEN f ELSE LET m == CHOOSE m \in set : TRUE IN Put([f EXCEPT ![m] = v], set \ {m}, v)

\* What other verbs do to the fields: a new fence closes the group and ends its shield. `opens`: groups that are open again.
\* `among`: no other message changes its state or its fence.
ResetAmong(among, opens) ==
  \E gone \in {{m \in among : state'[m] = "none"}} :
  \E changed \in {gone \cup {m \in among : fence'[m] # fence[m]}} :
     /\ group' = Put(group, gone, 0)
     /\ size' = Put(size, gone, 1)
     /\ stopped' = Put(stopped, gone, FALSE)
     /\ open' = Put(Put(open, changed, FALSE), opens, TRUE)
     /\ shielded' = Put(shielded, changed, FALSE)
     /\ ending' = Put(ending, changed, FALSE)
Reset(opens) == ResetAmong(Messages, opens)

IsLastIn(m, k) == lane[k] # <<>> /\ lane[k][Len(lane[k])] = m
SameLanes(m, n) == KeysOf[m] = KeysOf[n] /\ KeysOf[m] # {}
IsOpen(m) == Guard("open", fence[m] = 0 \/ open[m])
Interrupted(m, interrupts) == state[m] = "leased" /\ interrupts /\ Guard("shield", ~shielded[m])

\* joining.lua: n, of group g, may belong to the record of m.
MayJoin(n, m, g, most, interrupts) ==
  /\ m # n /\ SameLanes(m, n) /\ \A k \in KeysOf[n] : IsLastIn(m, k)
  /\ group[m] = g /\ size[m] < most /\ Guard("stopped", ~stopped[m])
  /\ IsOpen(m) \/ Interrupted(m, interrupts)
Join(n, m, interrupts) ==
  /\ IF Interrupted(m, interrupts) /\ "interrupt" \notin Without
     THEN TakenBack(m, "ready", lane) /\ open' = [open EXCEPT ![m] = TRUE] /\ shielded' = [shielded EXCEPT ![m] = FALSE]
     ELSE UNCHANGED <<records, indexes, clock, open, shielded>>
  /\ size' = [size EXCEPT ![m] = @ + size[n]]
  /\ UNCHANGED <<group, stopped, ending, died>>

\* The next message in all lanes of m, if it is of the same group and was never leased.
Follows(n, m) ==
  /\ n # m /\ SameLanes(m, n) /\ state[n] = "waiting" /\ fence[n] = 0
  /\ \A k \in KeysOf[m] : Len(lane[k]) > 1 /\ lane[k][1] = m /\ lane[k][2] = n
SameGroup(n, m) == group[n] = group[m] /\ group[m] # 0
\* n is not a message of its own any more.
Absorbed(n) ==
  /\ lane' = Left(n)
  /\ state' = [state EXCEPT ![n] = "none"]
  /\ UNCHANGED <<fence, holder, died, ready, leases, delayed, dead, overdue, clock>>

\* take.lua (one of n) and gather.lua (all of n): the run of m gets a message that follows.
Take(m, f, all) == \E n \in Messages :
  /\ Holds(m, f) /\ Follows(n, m) /\ (all \/ SameGroup(n, m))
  /\ IF size[n] > 1 /\ ~all
     THEN /\ size' = [size EXCEPT ![m] = @ + 1, ![n] = @ - 1]
          /\ UNCHANGED <<records, indexes, clock, group>>
     ELSE /\ Absorbed(n)
          /\ size' = [size EXCEPT ![m] = @ + size[n], ![n] = 1] /\ group' = [group EXCEPT ![n] = 0]
  /\ UNCHANGED <<open, stopped, shielded, ending>>

\* A stop of m, which is first in a lane. A run that is shielded continues until its shield ends.
Stop(m) ==
  IF ~stopped[m] /\ state[m] \in {"leased", "ready", "collecting", "delayed"}
  THEN /\ stopped' = [stopped EXCEPT ![m] = TRUE]
       /\ UNCHANGED <<group, size>>
       /\ IF (state[m] = "leased" /\ shielded[m]) \/ "stop takes back" \in Without
          THEN ending' = [ending EXCEPT ![m] = TRUE] /\ UNCHANGED <<records, indexes, clock, open, shielded>>
          ELSE TakenBack(m, "ready", lane) /\ UNCHANGED died
               /\ open' = [open EXCEPT ![m] = FALSE] /\ shielded' = [shielded EXCEPT ![m] = FALSE]
               /\ ending' = [ending EXCEPT ![m] = FALSE]
  ELSE UNCHANGED <<records, indexes, clock, fields>>

Shield(m, f) ==
  IF Holds(m, f) THEN shielded' = [shielded EXCEPT ![m] = TRUE] /\ UNCHANGED <<records, indexes, clock, group, size, open, stopped, ending>>
  ELSE UNCHANGED <<records, indexes, clock, fields>>
\* The shield ends: a stop that arrived meanwhile ends the run now. So do messages of its group that would have interrupted
\* it: that is two steps, Take (all of them) and Interrupt.
Unshield(m, f, most, interrupts) ==
  IF ~Holds(m, f) THEN UNCHANGED <<records, indexes, clock, fields>>
  ELSE IF ending[m] THEN TakenBack(m, "ready", lane) /\ Reset({}) /\ UNCHANGED died
  ELSE /\ stopped[m] \/ ~interrupts \/ ~\E n \in Messages : Follows(n, m) /\ SameGroup(n, m) /\ size[m] + size[n] <= most
       /\ shielded' = [shielded EXCEPT ![m] = FALSE]
       /\ UNCHANGED <<records, indexes, clock, group, size, open, stopped, ending>>
Interrupt(m, f) == Holds(m, f) /\ TakenBack(m, "ready", lane) /\ Reset({m}) /\ UNCHANGED died

---------------------------------------------------------------------------------
(* A small model: all messages are of one group.                                  *)
CONSTANTS Most, Interrupts, Steers, Stops
VARIABLES
  members,   \* record -> the messages that belong to it
  had,       \* record -> those that its last run got
  unrun,     \* messages that were settled with a run which did not have them
  stops
ofModel == <<members, had, unrun, stops>>

Collects(m) == heads' = [heads EXCEPT ![m] = IF size[m] + 1 < Most THEN "collecting" ELSE "ready"]
Enters == \E n \in Messages \ seen :
  /\ \A earlier \in Messages : earlier < n => earlier \in seen
  /\ IF \E m \in Messages : MayJoin(n, m, 1, Most, Interrupts)
     THEN LET m == CHOOSE m \in Messages : MayJoin(n, m, 1, Most, Interrupts)
          IN /\ Collects(m) /\ Join(n, m, Interrupts)
             /\ seen' = seen \cup {n} /\ members' = [members EXCEPT ![m] = @ \cup {n}, ![n] = {}]
     ELSE /\ heads' = [heads EXCEPT ![n] = "collecting"] /\ Add(n)
          /\ group' = [group EXCEPT ![n] = 1] /\ UNCHANGED <<size, open, stopped, shielded, ending, members>>
  /\ UNCHANGED <<outside, history, letters, had, unrun, stops>>
\* The quiet time of a group is over.
Quiet == \E m \in Messages :
  /\ heads[m] = "collecting" /\ heads' = [heads EXCEPT ![m] = "ready"]
  /\ Move({x \in {m} : Moves(x)}) /\ UNCHANGED <<letters, fields, ofModel>>
RunCalls(w) == \E r \in runs[w] :
  /\ condition[w] = "up" /\ UNCHANGED <<outside, history, seen, letters, unrun, stops>>
  /\ \/ Steers /\ UNCHANGED <<heads, died>> /\ Take(r.message, r.fence, TRUE) /\ \E n \in Messages :
          /\ Follows(n, r.message)
          /\ members' = [members EXCEPT ![r.message] = @ \cup members[n], ![n] = {}]
          /\ had' = [had EXCEPT ![r.message] = @ \cup members[n]]
     \/ UNCHANGED <<heads, died, had, members>> /\ (Shield(r.message, r.fence) \/ Unshield(r.message, r.fence, Most, Interrupts))
StopFirst == \E k \in Keys : lane[k] # <<>> /\ stops > 0 /\ stops' = stops - 1 /\ LET m == Head(lane[k]) IN
  /\ heads' = [heads EXCEPT ![m] = "ready"] /\ Stop(m)
  /\ UNCHANGED <<seen, outside, history, letters, members, had, unrun>>
Rest ==
  /\ UNCHANGED <<heads, letters, members, stops>>
  /\ \/ Confirm \/ Arrive \/ Elapse \/ Sweep
     \/ \E w \in Workers : Fetch(w) \/ Complete(w) \/ KeepAlive(w) \/ Start(w) \/ Crash(w) \/ Freeze(w) \/ GiveBack(w)
  /\ Reset({})
  /\ had' = [m \in Messages |-> IF handed'[m] > handed[m] THEN members[m] ELSE had[m]]
  /\ unrun' = unrun \cup UNION {members[m] \ had[m] : m \in {m \in Messages : settlements'[m] > settlements[m]}}

FieldsInit ==
  /\ group = [m \in Messages |-> 0] /\ size = [m \in Messages |-> 1]
  /\ open = [m \in Messages |-> FALSE] /\ stopped = open /\ shielded = open /\ ending = open
GroupsInit == LettersInit /\ FieldsInit /\ members = [m \in Messages |-> {m}] /\ had = [m \in Messages |-> {}] /\ unrun = {} /\ stops = Stops
GroupsNext == Enters \/ Quiet \/ StopFirst \/ Rest \/ \E w \in Workers : RunCalls(w)
GroupsSpec == GroupsInit /\ [][GroupsNext]_<<coreVars, letters, fields, ofModel>>

\* Each message of a settled group was in the run that settled it, so none is lost.
AllRun == unrun = {}
\* Each message is in one record.
EachOnce == \A m, n \in Messages : m # n => members[m] \cap members[n] = {}
Whole == \A m \in Messages : state[m] # "none" => size[m] = Cardinality(members[m]) /\ (Steers \/ size[m] <= Most)
\* Nothing joins a stopped group.
StoppedStays == [][\A m \in Messages : stopped[m] /\ stopped'[m] => size'[m] <= size[m]]_<<coreVars, fields>>
\* A stop ends the run at once, and a run that is shielded is ended by no message.
StopEnds == [][\A m \in Messages : state[m] = "leased" /\ ~shielded[m] /\ stopped'[m] /\ ~stopped[m]
                => fence'[m] > fence[m]]_<<coreVars, fields>>
ShieldHolds == [][\A m \in Messages : state[m] = "leased" /\ shielded[m] /\ (size'[m] > size[m] \/ stopped'[m] # stopped[m])
                   => state'[m] \in {"leased", "none"}]_<<coreVars, fields>>
=================================================================================
