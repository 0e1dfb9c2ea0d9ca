---------------------------------- MODULE Letters -------------------------------
(* Dead letters: a buried message is put back at the end of its lanes (replay.lua), *)
(* or deleted (drop.lua); a malformed one is buried by its append.                  *)
EXTENDS Core

CONSTANT Replays
VARIABLES replays, dropped
letters == <<replays, dropped>>

Replay(m) ==
  IF Guard("buried", state[m] = "buried")
  THEN LET lanes == Joined(m)
       IN /\ Becomes(m, IF IsFirst(lanes, m) THEN "ready" ELSE "waiting", fence[m], Nobody, lanes)
          /\ died' = [died EXCEPT ![m] = 0]
          /\ UNCHANGED <<seen, history>>
  ELSE UNCHANGED <<redis, history>>

Drop(m) ==
  IF Guard("buried", state[m] = "buried")
  THEN /\ Becomes(m, "none", 0, Nobody, lane)
       /\ died' = [died EXCEPT ![m] = 0]
       /\ UNCHANGED <<seen, history>>
  ELSE UNCHANGED <<redis, history>>

\* append.lua for a message with a `problem`.
AddBuried(m) ==
  IF m \notin seen /\ state[m] = "none"
  THEN /\ Becomes(m, "buried", NewFence(m), Nobody, lane)
       /\ seen' = seen \cup {m}
       /\ UNCHANGED <<died, history>>
  ELSE UNCHANGED <<redis, history>>

\* Without a number it is not remembered.
AddBuriedUnnumbered(m) ==
  IF state[m] = "none"
  THEN Becomes(m, "buried", NewFence(m), Nobody, lane) /\ UNCHANGED <<seen, died, history>>
  ELSE UNCHANGED <<redis, history>>

\* A person replays or drops any message, at any time.
Decide == \E m \in Messages :
  /\ replays > 0 /\ replays' = replays - 1
  /\ \/ Replay(m) /\ UNCHANGED dropped
     \/ Drop(m) /\ dropped' = IF state[m] = "buried" THEN dropped \cup {m} ELSE dropped
  /\ UNCHANGED outside

LettersInit == CoreInit /\ replays = Replays /\ dropped = None
LettersNext == UNCHANGED heads /\ ((Next /\ UNCHANGED letters) \/ Decide)
LettersSpec == LettersInit /\ [][LettersNext]_<<coreVars, letters>>

\* A replayed message stands behind those that were appended before, so numbers do not order a lane any more.
LettersOrder == \A k \in Keys : \A m \in Behind(k) : state[m] # "leased"
LettersNothingLost == \A m \in confirmed : state[m] = "none" => m \in completed \cup dropped
=================================================================================
