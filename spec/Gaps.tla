---------------------------------- MODULE Gaps ----------------------------------
(* Resequencing: messages arrive in another order than that of their numbers, which *)
(* are the messages themselves. One is held while a lower number is missing, or a   *)
(* lower one is held, until its time is over. A held message has a record and is in *)
(* no lane.                                                                         *)
EXTENDS Letters

VARIABLES
  patience,   \* numbers of which nobody waits for a lower one any more: their time is over
  old,        \* missing numbers for which no message that arrives now waits
  late        \* those that joined behind a higher number
ofGaps == <<patience, old, late>>

Held == {m \in Messages : state[m] = "held"}
IsMissing(n) == n \notin seen \cup old
MustWait(m) ==
  \/ "hold" \notin Without /\ \E n \in Messages : n < m /\ IsMissing(n)
  \/ "behind a held one" \notin Without /\ \E n \in Held : n < m

Hold(m) ==
  /\ state' = [state EXCEPT ![m] = "held"] /\ seen' = seen \cup {m}
  /\ UNCHANGED <<fence, holder, died, indexes, clock, history>>
Joins(m) ==
  /\ Enter(m, Joined(m))
  /\ late' = IF \E n \in Messages : n > m /\ n \in seen /\ state[n] # "held" THEN late \cup {m} ELSE late
Arrives == \E m \in Messages \ seen :
  /\ IF MustWait(m) THEN Hold(m) /\ UNCHANGED late ELSE Joins(m) /\ seen' = seen \cup {m} /\ UNCHANGED history
  /\ UNCHANGED <<outside, patience, old>>
\* The lowest held message joins when nothing is missing below it, or when its time is over.
Joining == \E m \in Held :
  /\ Guard("lowest first", \A n \in Held : n >= m)
  /\ m \in patience \/ ~\E n \in Messages : n < m /\ n \notin seen
  /\ Joins(m) /\ UNCHANGED <<seen, history, outside, patience, old>>
GiveUp == \E m \in Held \ patience : patience' = patience \cup {m} /\ UNCHANGED <<redis, outside, history, old, late>>
GapAges == \E n \in Messages \ (seen \cup old) : old' = old \cup {n} /\ UNCHANGED <<redis, outside, history, patience, late>>

GapsInit == LettersInit /\ patience = {} /\ old = {} /\ late = {}
GapsNext == UNCHANGED <<heads, letters>> /\
  (Arrives \/ Joining \/ GiveUp \/ GapAges
   \/ /\ UNCHANGED ofGaps
      /\ \/ Confirm \/ FetchKiller \/ Arrive \/ Elapse \/ Sweep
         \/ \E w \in Workers : Fetch(w) \/ Complete(w) \/ KeepAlive(w) \/ Start(w) \/ Crash(w))
GapsSpec == GapsInit /\ [][GapsNext]_<<coreVars, letters, ofGaps>>
GapsFair == GapsSpec /\ WF_<<coreVars, letters, ofGaps>>(GapsNext)

\* Messages that are not late are in the order of their numbers, also if they arrived in another one. None is late unless
\* a higher one has waited for as long as it may, or came so late that it did not have to wait.
GapsOrder == \A k \in Keys : \A i, j \in DOMAIN lane[k] : i < j /\ lane[k][j] \notin late => lane[k][i] < lane[k][j]
LateForAReason == \A m \in late : m \in old \/ \E n \in patience : n > m
=================================================================================
